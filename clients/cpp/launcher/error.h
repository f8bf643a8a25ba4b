#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace policybridge {

/// gRPC status codes in use, by their numbers on the wire.
enum Status : int {
  InvalidArgument = 3,
  DeadlineExceeded = 4,
  NotFound = 5,
  ResourceExhausted = 8,
  FailedPrecondition = 9,
  Unimplemented = 12,
  Internal = 13,
  Unavailable = 14,
};

/// What went wrong.
struct Error {
  enum class Kind {
    Policy,        ///< No advice, or a wrong command; `code` is a gRPC status.
    System,        ///< The compiler cannot be started, or a file not be written; `code` is an errno.
    Signal,        ///< The launcher was told to end; `code` is the signal's number.
    CompilerEnded, ///< The compiler exited while its question was open; nobody waits for the answer.
  };

  Kind kind;
  int code;
  std::string message;

  static Error policy(int status, std::string message) { return {Kind::Policy, status, std::move(message)}; }
  static Error signal(int number) { return {Kind::Signal, number, ""}; }
  static Error compiler_ended() { return {Kind::CompilerEnded, 0, ""}; }
  /// Words an errno as `policybridge run` does.
  static Error system(int number, const std::string &path);
};

/// Nothing, or what went wrong.
using Failure = std::optional<Error>;

/// A value, or what went wrong.
template <class T> class Result {
public:
  Result(T value) : held_(std::move(value)) {}
  Result(Error error) : held_(std::move(error)) {}

  explicit operator bool() const { return held_.index() == 0; }
  T &operator*() { return *std::get_if<0>(&held_); }
  T *operator->() { return std::get_if<0>(&held_); }
  Error &error() { return *std::get_if<1>(&held_); }

private:
  std::variant<T, Error> held_;
};

} // namespace policybridge

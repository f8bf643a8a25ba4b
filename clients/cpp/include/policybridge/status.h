#ifndef POLICYBRIDGE_STATUS_H
#define POLICYBRIDGE_STATUS_H

#include <optional>
#include <string>
#include <utility>

namespace policybridge {

/// The result of a call, by gRPC's numbers, which are also used on the wire.
enum class StatusCode : int {
  Ok = 0,
  Cancelled = 1,
  Unknown = 2,
  InvalidArgument = 3,
  DeadlineExceeded = 4,
  NotFound = 5,
  AlreadyExists = 6,
  PermissionDenied = 7,
  ResourceExhausted = 8,
  FailedPrecondition = 9,
  Aborted = 10,
  OutOfRange = 11,
  Unimplemented = 12,
  Internal = 13,
  Unavailable = 14,
  DataLoss = 15,
  Unauthenticated = 16,
};

/// The code's name in capitals, as gRPC writes it: "NOT_FOUND".
const char *to_string(StatusCode code) noexcept;

/// The code with that number on the wire; `Unknown` for a number without a code.
StatusCode status_code_from(int number) noexcept;

/// Success, or a code and a message that names the fault and the right form.
class [[nodiscard]] Status {
public:
  Status() noexcept = default;
  Status(StatusCode code, std::string message) noexcept : code_(code), message_(std::move(message)) {}

  bool ok() const noexcept { return code_ == StatusCode::Ok; }
  StatusCode code() const noexcept { return code_; }
  const std::string &message() const noexcept { return message_; }

private:
  StatusCode code_ = StatusCode::Ok;
  std::string message_;
};

/// @name Statuses by what went wrong, as the classes in policybridge_serdes.errors
/// @{
inline Status invalid_argument(std::string message) { return {StatusCode::InvalidArgument, std::move(message)}; }
inline Status deadline_exceeded(std::string message) { return {StatusCode::DeadlineExceeded, std::move(message)}; }
inline Status not_found(std::string message) { return {StatusCode::NotFound, std::move(message)}; }
inline Status resource_exhausted(std::string message) { return {StatusCode::ResourceExhausted, std::move(message)}; }
inline Status failed_precondition(std::string message) { return {StatusCode::FailedPrecondition, std::move(message)}; }
inline Status unimplemented(std::string message) { return {StatusCode::Unimplemented, std::move(message)}; }
inline Status internal_error(std::string message) { return {StatusCode::Internal, std::move(message)}; }
inline Status unavailable(std::string message) { return {StatusCode::Unavailable, std::move(message)}; }
/// @}

/// A value, or the status that says why there is none. Check `ok()` before you use the value.
template <class T> class [[nodiscard]] Result {
public:
  Result(T value) : value_(std::move(value)) {}
  /// `status` must not be Ok: a result without a value needs a reason.
  Result(Status status) : status_(std::move(status)) {
    if (status_.ok())
      status_ = internal_error("a result has neither a value nor an error");
  }

  bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  const Status &status() const noexcept { return status_; }

  T &value() & noexcept { return *value_; }
  const T &value() const & noexcept { return *value_; }
  T &&value() && noexcept { return *std::move(value_); }
  T &operator*() & noexcept { return *value_; }
  const T &operator*() const & noexcept { return *value_; }
  T &&operator*() && noexcept { return *std::move(value_); }
  T *operator->() noexcept { return &*value_; }
  const T *operator->() const noexcept { return &*value_; }

private:
  std::optional<T> value_;
  Status status_;
};

} // namespace policybridge

#endif

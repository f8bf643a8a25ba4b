#ifndef POLICYBRIDGE_SRC_PROTOCOL_H
#define POLICYBRIDGE_SRC_PROTOCOL_H

#include "policybridge/session.h"
#include "policybridge/status.h"
#include "policybridge/tensor_spec.h"

#include <array>
#include <chrono>
#include <string>
#include <string_view>

/// The lines of proto/SOCKET.md and of LLVM's interactive protocol. The writers take values that have passed their
/// `check`.
namespace policybridge::protocol {

/// Longest line that is accepted, in bytes; the server has the same limit.
inline constexpr std::size_t max_line = std::size_t{1} << 20;

/// Largest advice that is accepted, in bytes.
inline constexpr std::uint64_t max_advice = std::uint64_t{64} << 20;

std::string hello_line(const OpenOptions &options);
std::string header_line(const Signature &signature);
std::string context_line(std::string_view name);
std::string outcome_line(const Outcome &outcome);
std::string form_line(std::string_view digest);
std::string decided_line(std::uint32_t count, std::chrono::nanoseconds time, bool chances);
std::string end_line();
/// The first line of the record of a session.
std::string resume_line(const SessionInfo &info, const OpenOptions &options);
std::string report_line(std::string_view session_id, const Outcome &outcome);

/// The line before an observation's payload. Making one allocates nothing.
class ObservationLine {
public:
  /// For fixed features.
  explicit ObservationLine(std::uint64_t number);
  /// For features that vary, whose payload has `bytes`.
  ObservationLine(std::uint64_t number, std::uint64_t bytes);

  std::string_view text() const noexcept { return {text_.data(), size_}; }

private:
  void put(std::string_view text);
  void put(std::uint64_t number);

  std::array<char, 80> text_;
  std::size_t size_ = 0;
};

/// Read a header line. InvalidArgument or ResourceExhausted: it is malformed, or the signature's check fails.
Result<Signature> parse_header(std::string_view line);

/// Read the name in a context line. InvalidArgument: there is none.
Result<std::string> parse_context(std::string_view line);

/// Read the answer to a hello; a line with an error gives that error. InvalidArgument: it is neither.
Result<SessionInfo> parse_opened(std::string_view line);

/// Read the answer to an outcome: Ok when it is recorded, else as `parse_opened`.
Status parse_recorded(std::string_view line);

/// Read the line that ends a session, and give the status in it. InvalidArgument: there is none.
Status parse_failure(std::string_view line);

} // namespace policybridge::protocol

#endif

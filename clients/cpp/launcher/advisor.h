#pragma once

#include "arguments.h"
#include "channel.h"
#include "defaults.h"
#include "interactive_reader.h"
#include "signals.h"
#include "socket.h"
#include "statistics.h"

#include <memory>
#include <optional>
#include <string>

namespace policybridge {

/// Advises one compiler: with the policy's advice, and after a failure with LLVM's own default.
class Advisor {
public:
  /// `continues`: whether the defaults may answer after a failure.
  Advisor(const Config &config, const std::map<std::string, std::string> &labels, Defaults defaults,
          Statistics &statistics, Interrupts interrupts, bool continues)
      : config_(config), defaults_(defaults), statistics_(statistics), interrupts_(interrupts), continues_(continues),
        server_(config.socket, {config.timeout, {}, interrupts.descriptors()}),
        options_{config.policy, {}, config.options, labels, {}} {}

  /// The size of the next observation in bytes, once a header has announced it.
  std::optional<std::size_t> payload_size() const { return signature_ ? std::optional(size_) : std::nullopt; }

  /// Take a message of the compiler's; the answer to an observation is written to the channel.
  ///
  /// Cancelled where `Interrupts::raised`. Any other error: there is neither advice nor a default; the compiler waits,
  /// and has to be ended.
  Status receive(const Message &message, const Channel &channel);

private:
  Status begin(std::string_view header);
  Status answer(std::string_view payload, const Channel &channel);
  Status evaluate(std::string_view payload, const Channel &channel);
  Status open();
  std::string_view observation_in(std::string_view payload);

  const Config &config_;
  Defaults defaults_;
  Statistics &statistics_;
  Interrupts interrupts_;
  const bool continues_;
  SocketConnection server_;
  OpenOptions options_;
  std::string header_;
  std::optional<Signature> signature_;
  std::size_t size_ = 0;
  std::unique_ptr<Session> session_;
  std::uint64_t step_ = 0;
  std::string observation_;
  AdviceBuffer advice_;
};

} // namespace policybridge

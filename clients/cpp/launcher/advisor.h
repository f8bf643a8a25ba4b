#pragma once

#include "arguments.h"
#include "channel.h"
#include "decision_store.h"
#include "defaults.h"
#include "growth.h"
#include "interactive_reader.h"
#include "patience.h"
#include "signals.h"
#include "server.h"
#include "sources.h"
#include "statistics.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace policybridge {

/// One module's decisions by sequence, the LLVM version of its compiler, and how many decisions it has asked for.
struct StoredDecisions {
  Decisions decisions;
  int llvm = 0;
  std::uint64_t applied = 0;
};

/// Advises one compiler: with the policy's advice; after a failure, and beyond the growth limit, with LLVM's own default.
class Advisor {
public:
  using Server = Result<std::shared_ptr<Connection>>;

  using Labels = std::function<std::map<std::string, std::string>()>;

  /// `labels`: called for the first session. `continues`: whether the defaults may answer after a failure. `server`
  /// outlives this. `stored`: what answers in its place; null for a server.
  Advisor(const Config &config, Labels labels, Defaults defaults, Statistics &statistics, Interrupts interrupts,
          bool continues, const Server &server, StoredDecisions *stored)
      : config_(config), labels_(std::move(labels)), defaults_(defaults), statistics_(statistics),
        interrupts_(interrupts), continues_(continues), server_(server), stored_(stored),
        options_{config.policy, source_of(config.command), config.options, {}, {}}, patience_(config.timeout),
        growth_(config.growth_limit) {
    if (config.exploration)
      options_.exploration = config.exploration->of_module(options_.context);
    options_.evaluate = config.evaluate;
    options_.spool = config.spool;
    options_.records = statistics_.records;
  }

  /// The size of the next observation in bytes, once a header has announced it.
  std::optional<std::size_t> payload_size() const { return signature_ ? std::optional(size_) : std::nullopt; }

  /// Take a message of the compiler's; the answer to an observation is written to the channel.
  ///
  /// Cancelled where `Interrupts::raised`. Any other error: there is neither advice nor a default; the compiler waits,
  /// and has to be ended.
  Status receive(const Message &message, const Channel &channel);

  /// Give the session away, to report its outcome; null if none is open.
  std::unique_ptr<Session> take_session() { return std::move(session_); }

private:
  Status begin(std::string_view header);
  Status answer(std::string_view payload, const Channel &channel);
  Status evaluate(std::string_view payload, const Channel &channel);
  void count(std::string_view payload, std::string_view advice, std::chrono::nanoseconds time);
  Status reply_default(std::string_view payload, const Channel &channel, std::uint64_t &count);
  Status open();
  std::string_view observation_in(std::string_view payload);

  const Config &config_;
  Labels labels_; // empty once they are in the options
  Defaults defaults_;
  Statistics &statistics_;
  Interrupts interrupts_;
  const bool continues_;
  const Server &server_;
  StoredDecisions *const stored_;
  OpenOptions options_;
  std::string header_;
  std::optional<Signature> signature_;
  std::size_t size_ = 0;
  std::unique_ptr<Session> session_;
  std::uint64_t step_ = 0;
  std::string observation_;
  AdviceBuffer advice_;
  Patience patience_;
  Growth growth_;
};

} // namespace policybridge

#pragma once

#include "channel.h"
#include "defaults.h"
#include "session.h"
#include "statistics.h"
#include "stream.h"

#include <optional>
#include <string>
#include <vector>

namespace policybridge {

/// One compiler's questions and their answers: from the policy, and after a failure from LLVM's own default.
class Conversation {
public:
  /// `goes_on`: whether the defaults may answer after a failure.
  Conversation(const Config &config, const Labels &labels, Defaults defaults, Statistics &statistics, bool goes_on)
      : config_(config), labels_(labels), defaults_(defaults), statistics_(statistics), goes_on_(goes_on) {}

  /// The size of the next observation, once a header said it.
  std::optional<std::size_t> payload_size() const { return signature_ ? std::optional(size_) : std::nullopt; }

  /// Takes an event; an observation's answer is written to the channel. A Policy error where there is neither advice
  /// nor a default: the compiler waits and has to be ended.
  Failure answer(const Event &event, const Channel &channel, Patience patience);

private:
  Failure begin(std::string_view line);
  Failure observe(const Event &event, const Channel &channel, Patience patience);
  Failure ask(const Event &event, const Channel &channel, Patience patience);
  Failure open(Patience patience);
  Failure send(const Event &event);
  Failure fall_back(Error error);

  const Config &config_;
  const Labels &labels_;
  Defaults defaults_;
  Statistics &statistics_;
  bool goes_on_;
  bool failed_ = false;
  std::optional<Signature> signature_;
  std::size_t size_ = 0;
  std::string header_;
  std::string context_;
  /// What the session has not been told yet.
  bool header_is_news_ = false;
  bool context_is_news_ = false;
  std::optional<Session> session_;
  std::vector<char> advice_;
};

} // namespace policybridge

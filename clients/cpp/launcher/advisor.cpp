#include "advisor.h"

#include "features.h"
#include "local_session.h"
#include "protocol.h"
#include "stored_session.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace policybridge {

Status Advisor::receive(const Message &message, const Channel &channel) {
  if (message.kind == Message::Kind::Observation)
    return answer(message.payload, channel);
  if (message.kind == Message::Kind::Header)
    return begin(message.line);
  Result<std::string> context = protocol::parse_context(message.line);
  if (!context.ok())
    return context.status();
  // LLVM's inliner gives an empty name. The context is the source then, which the session is opened with.
  if (context->empty())
    return {};
  options_.context = *std::move(context);
  return session_ ? session_->set_context(options_.context) : Status();
}

Status Advisor::begin(std::string_view header) {
  ++statistics_.headers;
  // A command with several sources writes a header for each. It is one compilation, and so one session as long as the
  // features stay the same.
  if (signature_ && header == header_) {
    growth_.begin(*signature_);
    return {};
  }
  session_.reset();
  Result<Signature> signature = protocol::parse_header(header);
  if (!signature.ok())
    return signature.status();
  if (Status status = check_llvm_signature(*signature); !status.ok())
    return status;
  size_ = static_cast<std::size_t>(signature->observation_size());
  signature_ = *std::move(signature);
  header_.assign(header);
  growth_.begin(*signature_);
  return defaults_.begin(*signature_);
}

Status Advisor::answer(std::string_view payload, const Channel &channel) {
  if (growth_.is_reached())
    return reply_default(payload, channel, statistics_.limited);
  if (statistics_.failure.ok()) {
    Status status = evaluate(payload, channel);
    if (status.ok() || interrupts_.raised())
      return status;
    session_.reset();
    statistics_.failure = std::move(status);
    if (!continues_)
      return statistics_.failure;
  }
  return reply_default(payload, channel, statistics_.defaults);
}

Status Advisor::reply_default(std::string_view payload, const Channel &channel, std::uint64_t &count) {
  Result<std::string_view> decision = defaults_.decision(payload);
  if (!decision.ok())
    return decision.status();
  channel.reply(*decision);
  ++count;
  return {};
}

Status Advisor::evaluate(std::string_view payload, const Channel &channel) {
  using Clock = std::chrono::steady_clock;
  if (!session_)
    if (Status status = open(); !status.ok())
      return status;
  if (Status status = patience_.check(); !status.ok())
    return status;
  const Clock::time_point begun = Clock::now();
  if (Status status = session_->evaluate(++step_, observation_in(payload), advice_); !status.ok())
    return status;
  const std::string_view advice(advice_.bytes.data(), advice_.bytes.size());
  if (Status status = config_.task->make_legal(*signature_, payload, advice_.bytes); !status.ok())
    return status;
  channel.reply(advice);
  count(payload, advice, Clock::now() - begun);
  return {};
}

void Advisor::count(std::string_view payload, std::string_view advice, std::chrono::nanoseconds time) {
  patience_.count(time);
  statistics_.count(config_.task->is_choice ? std::optional(integer_in(advice)) : std::nullopt, time);
  if (defaults_.known() && integer_in(advice))
    if (const auto own = defaults_.decision(payload); own.ok() && !integer_in(*own))
      growth_.count(payload);
}

Status Advisor::open() {
  if (stored_) {
    Result<std::unique_ptr<Session>> session = StoredSession::open(*signature_, stored_->decisions, stored_->applied);
    if (!session.ok())
      return session.status();
    session_ = *std::move(session);
    return {};
  }
  if (labels_)
    options_.labels = std::exchange(labels_, nullptr)();
  // One compilation stays on one version, also where a second signature takes a second session.
  if (statistics_.policy)
    options_.policy = {statistics_.policy->name, statistics_.policy->version, {}};
  if (!server_.ok())
    return server_.status();
  Result<std::unique_ptr<Session>> session = open_session(**server_, options_, *signature_);
  if (!session.ok())
    return session.status();
  Result<SessionInfo> info = (*session)->info();
  if (!info.ok())
    return info.status();
  session_ = *std::move(session);
  step_ = 0;
  statistics_.policy = info->policy;
  statistics_.not_asked.clear();
  std::copy_if(info->decides.begin(), info->decides.end(), std::back_inserter(statistics_.not_asked),
               [this](const std::string &kind) { return kind != signature_->advice.name; });
  statistics_.sessions.push_back(info->id);
  return {};
}

/// The features as the session's signature has them: LLVM's, and the default decision where the launcher computes it.
std::string_view Advisor::observation_in(std::string_view payload) {
  const std::string_view computed = defaults_.computed(payload);
  if (computed.empty())
    return payload;
  observation_.assign(payload).append(computed);
  return observation_;
}

} // namespace policybridge

#include "conversation.h"

#include <chrono>
#include <utility>

namespace policybridge {

namespace {

iovec piece(std::string_view bytes) { return {const_cast<char *>(bytes.data()), bytes.size()}; }

} // namespace

Failure Conversation::answer(const Event &event, const Channel &channel, Patience patience) {
  if (event.kind == Event::Kind::Observation)
    return observe(event, channel, patience);
  if (event.kind == Event::Kind::Header)
    return begin(event.bytes);
  context_.assign(event.bytes);
  context_is_news_ = true;
  return {};
}

Failure Conversation::begin(std::string_view line) {
  ++statistics_.headers;
  // The next source of the same command: one compilation, so one session as long as the features stay the same.
  if (signature_ && line == header_)
    return {};
  session_.reset();
  Result<Signature> signature = Signature::parse(line);
  if (!signature)
    return std::move(signature.error());
  signature_ = std::move(*signature);
  size_ = signature_->size();
  advice_.resize(signature_->advice.size);
  header_.assign(line);
  return defaults_.begin(*signature_);
}

Failure Conversation::observe(const Event &event, const Channel &channel, Patience patience) {
  if (!failed_) {
    Failure failure = ask(event, channel, patience);
    if (!failure || failure->kind != Error::Kind::Policy)
      return failure;
    if (Failure given_up = fall_back(std::move(*failure)))
      return given_up;
  }
  Result<std::string_view> own = defaults_.answer(event.payload);
  if (!own)
    return std::move(own.error());
  channel.reply(*own);
  ++statistics_.defaults;
  return {};
}

Failure Conversation::ask(const Event &event, const Channel &channel, Patience patience) {
  using Clock = std::chrono::steady_clock;
  if (Failure failure = session_ ? Failure() : open(patience))
    return failure;
  const Clock::time_point begun = Clock::now();
  if (Failure failure = send(event))
    return failure;
  if (Failure illegal = config_.task->legal(*signature_, event.payload, advice_.data()))
    return illegal;
  channel.reply({advice_.data(), advice_.size()});
  const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begun);
  const bool choice = config_.task->choices;
  statistics_.count(choice ? std::optional(integer_of(signature_->advice, advice_.data())) : std::nullopt,
                    took.count());
  return {};
}

Failure Conversation::open(Patience patience) {
  PolicyReference reference = config_.policy;
  // One compilation stays on one version, also where a second signature takes a second session.
  if (statistics_.policy)
    reference = {statistics_.policy->name, statistics_.policy->version, ""};
  Result<Session> opened = Session::open(config_, reference, labels_, patience);
  if (!opened)
    return std::move(opened.error());
  session_.emplace(std::move(*opened));
  header_is_news_ = context_is_news_ = true;
  statistics_.policy = session_->policy();
  statistics_.sessions.push_back(session_->id());
  return {};
}

Failure Conversation::send(const Event &event) {
  iovec pieces[5];
  std::size_t count = 0;
  std::string extended;
  if (std::exchange(header_is_news_, false)) {
    extended = defaults_.extended(header_);
    pieces[count++] = piece(extended);
  }
  if (std::exchange(context_is_news_, false))
    pieces[count++] = piece(context_);
  const std::string_view addition = defaults_.addition(event.payload);
  if (addition.empty()) {
    pieces[count++] = piece(event.bytes);
  } else {
    pieces[count++] = piece(event.bytes.substr(0, event.bytes.size() - 1));
    pieces[count++] = piece(addition);
    pieces[count++] = piece("\n");
  }
  return session_->evaluate(pieces, count, advice_.data(), advice_.size());
}

Failure Conversation::fall_back(Error error) {
  failed_ = true;
  session_.reset();
  statistics_.failure = error;
  return goes_on_ ? Failure() : Failure(std::move(error));
}

} // namespace policybridge

#include "queued_session.h"

#include "guard.h"
#include "utf8.h"

#include <string>
#include <utility>

namespace policybridge::plugin {

/// Make a call that has an answer, after all that is to be sent before it.
template <class Call> auto QueuedSession::at_once(Call &&call) -> decltype(call()) {
  worker_.settle();
  if (!lost_.ok())
    return lost_;
  auto answer = call();
  is_open_ = server_->is_open();
  return answer;
}

/// Let the worker make a call that has no answer. A failure is told by the next call.
template <class Call> Status QueuedSession::later(std::size_t size, Call &&call) {
  if (!is_open_)
    return at_once([] { return failed_precondition("the session is over"); });
  if (waiting_ + size > most_waiting)
    worker_.settle();
  return guarded([&]() -> Status {
    Worker::Call posted = [this, size, made = std::forward<Call>(call)] {
      if (lost_.ok())
        lost_ = made();
      is_open_ = lost_.ok() && server_->is_open();
      waiting_ -= size;
    };
    waiting_ += size;
    worker_.post(std::move(posted));
    return {};
  });
}

Status QueuedSession::evaluate(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) {
  return at_once([&] { return server_->evaluate(step, observation, advice); });
}

Status QueuedSession::bind(const Signature &signature) {
  return later(0, [this, signature] { return server_->bind(signature); });
}

Status QueuedSession::set_context(std::string_view name) {
  if (!is_utf8(name))
    return invalid_argument("a context's name is not UTF-8: " + quoted(name));
  return later(name.size(), [this, own = std::string(name)] { return server_->set_context(own); });
}

Status QueuedSession::report(const Outcome &outcome) {
  return at_once([&] { return server_->report(outcome); });
}

Result<std::string> QueuedSession::form(const FormReference &form) {
  return at_once([&] { return server_->form(form); });
}

std::optional<Result<std::optional<Form>>> QueuedSession::form_ahead(const std::string &digest) {
  return ahead_ && ahead_->digest == digest ? std::optional(ahead_->form) : std::nullopt;
}

Status QueuedSession::decided(std::uint32_t count, std::chrono::nanoseconds time, std::string_view payload) {
  return later(payload.size(), [this, count, time, own = std::string(payload)] {
    return server_->decided(count, time, own);
  });
}

Status QueuedSession::conclude(const Outcome &outcome) {
  return at_once([&] { return server_->conclude(outcome); });
}

Status QueuedSession::finish() {
  return at_once([&] { return server_->finish(); });
}

Status QueuedSession::send_record(std::string_view record, std::chrono::microseconds timeout) {
  return at_once([&] { return server_->send_record(record, timeout); });
}

void QueuedSession::close() noexcept {
  worker_.settle();
  is_open_ = false;
  server_->close();
}

} // namespace policybridge::plugin

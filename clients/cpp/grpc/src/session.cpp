#include "session.h"

#include "guard.h"
#include "messages.h"
#include "utf8.h"

#include <algorithm>
#include <utility>

namespace policybridge {

Result<std::unique_ptr<Session>> GrpcSession::open(Calls calls, std::string server, const OpenOptions &options,
                                                   const Signature &signature) {
  std::unique_ptr<Stream> stream = calls(std::chrono::microseconds::max());
  Tries tries(stream->timeout());
  v1::SessionRequest request;
  *request.mutable_open() = to_message(options, signature);
  v1::SessionResponse response;
  Status status = stream->request({}, request, response);
  while (tries.again(status)) {
    stream = calls(std::chrono::microseconds::max());
    status = stream->request({}, request, response, tries.spent());
  }
  if (!status.ok())
    return status;
  if (!response.has_opened())
    return stream->fail(internal_error("the server's first answer is not `opened`"));
  std::unique_ptr<GrpcSession> session(new GrpcSession(std::move(calls), std::move(server), std::move(stream),
                                                       from_message(response.opened()), options.exploration.has_value()));
  if (options.several_kinds)
    if (status = session->bind(signature); !status.ok())
      return status;
  return std::unique_ptr<Session>(std::move(session));
}

template <class Call> Status GrpcSession::ended_by_failure(Call &&call) {
  Status status = guarded(call);
  // Whatever failed: an answer that comes late would be taken for the next request's.
  return !status.ok() && is_open() ? stream_->fail(std::move(status)) : status;
}

Status GrpcSession::evaluate(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) {
  return ended_by_failure([&] { return decide(step, observation, advice); });
}

Status GrpcSession::decide(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) {
  if (observation.size() > largest_values)
    return resource_exhausted("an observation of " + std::to_string(observation.size()) + " bytes; at most " +
                              std::to_string(largest_values) + " are sent");
  v1::Observation &message = *request_.mutable_observation();
  message.set_step(step);
  message.mutable_values()->assign(observation.data(), observation.size());
  if (Status status = request(request_); !status.ok())
    return status;
  const v1::Decision &decision = response_.decision();
  if (decision.step() != step || decision.version() != info_.policy.version)
    return internal_error("step " + std::to_string(step) + " was requested from version " +
                          std::to_string(info_.policy.version) + ", and step " + std::to_string(decision.step()) +
                          " answered by version " + std::to_string(decision.version()));
  advice.bytes.assign(decision.advice().begin(), decision.advice().end());
  advice.log_probability.reset();
  if (decision.has_log_probability())
    advice.log_probability = decision.log_probability();
  return {};
}

Status GrpcSession::set_context(std::string_view name) {
  return guarded([&]() -> Status {
    if (!is_open())
      return failed_precondition("the session is over: " + stream_->over().message());
    if (!is_utf8(name))
      return invalid_argument("a context's name is not UTF-8: " + quoted(name));
    pending(v1::SessionRequest::kContext).mutable_context()->mutable_name()->assign(name.data(), name.size());
    return {};
  });
}

Status GrpcSession::bind(const Signature &signature) {
  return guarded([&]() -> Status {
    if (!is_open())
      return failed_precondition("the session is over: " + stream_->over().message());
    *pending(v1::SessionRequest::kSignature).mutable_signature() = to_message(signature);
    return {};
  });
}

/// The message of a kind that waits for the next request behind the last decisions, made if there is none.
v1::SessionRequest &GrpcSession::pending(v1::SessionRequest::MessageCase kind) {
  for (std::size_t n = decided_; n < pending_.size(); ++n)
    if (pending_[n].message_case() == kind)
      return pending_[n];
  return pending_.emplace_back();
}

Result<std::string> GrpcSession::form(const FormReference &form) {
  std::string bytes;
  const Status status = ended_by_failure([&] { return receive_form(form, bytes); });
  return status.ok() ? Result<std::string>(std::move(bytes)) : status;
}

Status GrpcSession::receive_form(const FormReference &form, std::string &bytes) {
  v1::SessionRequest request;
  request.mutable_form()->set_digest(form.digest);
  // What waits to be sent has time, and a session that was opened ahead has no signature yet.
  Status status = stream_->request({}, request, response_);
  while (status.ok()) {
    if (!response_.has_form() || bytes.size() + response_.form().data().size() > form.bytes)
      return internal_error("the server's answer to a request for a form is not that form");
    bytes += response_.form().data();
    if (response_.form().last())
      return {};
    status = stream_->next(response_);
  }
  return status;
}

Status GrpcSession::decided(std::uint32_t count, std::chrono::nanoseconds time, std::string_view payload) {
  return ended_by_failure([&]() -> Status {
    v1::Decided &message = *pending_.emplace_back().mutable_decided();
    message.set_count(count);
    message.set_nanoseconds(static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0)));
    message.mutable_payload()->assign(payload.data(), payload.size());
    message.set_chances(explores_);
    decided_ = pending_.size();
    decided_bytes_ += payload.size();
    return decided_bytes_ < send_at ? Status() : send_pending();
  });
}

Status GrpcSession::send_pending() {
  decided_ = decided_bytes_ = 0;
  const std::vector<v1::SessionRequest> messages = std::exchange(pending_, {});
  return stream_->send(messages);
}

Status GrpcSession::conclude(const Outcome &outcome) {
  return ended_by_failure([&]() -> Status {
    v1::SessionRequest request;
    *request.mutable_outcome() = to_message(outcome);
    const std::vector<v1::SessionRequest> before = std::exchange(pending_, {});
    if (Status status = stream_->conclude(before, request, response_); !status.ok())
      return status;
    return recorded();
  });
}

Status GrpcSession::finish() {
  return ended_by_failure([&]() -> Status {
    const std::vector<v1::SessionRequest> messages = std::exchange(pending_, {});
    return stream_->finish(messages);
  });
}

Status GrpcSession::send_record(std::string_view record, std::chrono::microseconds timeout) {
  constexpr std::size_t piece = std::size_t{32} << 10;
  return guarded([&]() -> Status {
    std::vector<v1::SessionRequest> messages;
    for (std::size_t at = 0; at < record.size(); at += piece) {
      const std::string_view next = record.substr(at, piece);
      messages.emplace_back().mutable_record()->assign(next.data(), next.size());
    }
    return calls_(timeout)->finish(messages);
  });
}

void GrpcSession::close() noexcept {
  if (is_open() && decided_)
    // A record that finds no way is lost; the compilation is over.
    (void)guarded([&] { return send_pending(); });
  stream_->close();
}

Status GrpcSession::report(const Outcome &outcome) {
  return ended_by_failure([&] { return tell(outcome); });
}

Status GrpcSession::tell(const Outcome &outcome) {
  v1::SessionRequest request;
  *request.mutable_outcome() = to_message(outcome);
  if (Status status = this->request(request); !status.ok())
    return status;
  return recorded();
}

Status GrpcSession::recorded() const {
  return response_.has_outcome_recorded()
             ? Status()
             : internal_error("the server's answer to an outcome is not `outcome_recorded`");
}

Status GrpcSession::request(const v1::SessionRequest &request) {
  decided_ = decided_bytes_ = 0;
  const std::vector<v1::SessionRequest> before = std::exchange(pending_, {});
  return stream_->request(before, request, response_);
}

} // namespace policybridge

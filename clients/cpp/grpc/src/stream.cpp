#include "stream.h"

#include "deadline.h"
#include "utf8.h"

#include <algorithm>
#include <array>
#include <thread>

namespace policybridge {
namespace {

/// How long to wait for a server to confirm the end of a session.
constexpr std::chrono::microseconds closing = std::chrono::seconds(1);

/// The waits before further tries: gRPC may give the connection that refused a call to the next one, too.
constexpr std::array<std::chrono::milliseconds, 4> again_after = {{
    std::chrono::milliseconds(0), std::chrono::milliseconds(10), std::chrono::milliseconds(100),
    std::chrono::milliseconds(1000)}};

/// Whether a server has not seen the call that failed so: it is leaving, or takes no more streams.
bool was_refused(const Status &status) {
  // gRPC tells it in its text alone.
  const auto told = [&](const char *text) { return status.message().find(text) != std::string::npos; };
  return status.code() == StatusCode::Unavailable && (told("GOAWAY received") || told("RST_STREAM with error code 7"));
}

} // namespace

Status GrpcServer::status_of(const ::grpc::Status &failure) const {
  if (failure.ok())
    return unavailable("the server at " + target + " ended the session");
  // A server may send any bytes.
  const std::string details = failure.error_message().empty() ? "no reason given" : valid_utf8(failure.error_message());
  const ::grpc::StatusCode code = failure.error_code();
  if (code == ::grpc::StatusCode::UNAVAILABLE || code == ::grpc::StatusCode::CANCELLED)
    return unavailable("the server at " + target + ": " + details);
  // A server of another kind at this address: its details say nothing that a user could follow.
  if (code == ::grpc::StatusCode::UNKNOWN || code == ::grpc::StatusCode::UNIMPLEMENTED)
    return {status_code_from(code), details + " (said by the server at " + target + ")"};
  return {status_code_from(code), details};
}

Status GrpcServer::status_of(WaitEnd end, const ::grpc::Status &failure) const {
  if (end == WaitEnd::Late)
    return deadline_exceeded("no answer from the server at " + target + " within " + seconds(timeout));
  if (end == WaitEnd::Interrupted)
    return {StatusCode::Cancelled, "interrupted while waiting for the server at " + target};
  return status_of(failure);
}

bool Tries::again(const Status &status) {
  if (made_ == again_after.size() || !was_refused(status))
    return false;
  const std::chrono::milliseconds wait = again_after[made_++];
  if (spent() + wait >= timeout_)
    return false;
  std::this_thread::sleep_for(wait);
  return true;
}

Stream::Stream(const std::shared_ptr<::grpc::Channel> &channel, GrpcServer server, std::shared_ptr<CallDeadlines> deadlines)
    : server_(std::move(server)), deadlines_(std::move(deadlines)), stub_(v1::PolicyService::NewStub(channel)) {
  context_.set_initial_metadata_corked(true);
  server_.access.show(context_);
  call_ = stub_->Session(&context_);
}

Status Stream::request(Span<const v1::SessionRequest> before, const v1::SessionRequest &request,
                       v1::SessionResponse &response, CallDeadline::Clock::duration spent) {
  due_ = CallDeadline::Clock::now() + server_.timeout - spent;
  return within_deadline([&] { return exchange(before, request, response); }, spent);
}

Status Stream::next(v1::SessionResponse &response) {
  if (CallDeadline::Clock::now() > due_)
    return fail(server_.status_of(WaitEnd::Late, {}));
  return within_deadline([&] { return call_->Read(&response); });
}

Status Stream::send(Span<const v1::SessionRequest> messages) {
  return within_deadline([&] { return write(messages); });
}

/// Make a call of the stream that gives whether it worked.
template <class Call> Status Stream::within_deadline(Call &&call, CallDeadline::Clock::duration spent) {
  if (!over_.ok())
    return failed_precondition("the session is over: " + over_.message());
  deadline_.begin(server_.timeout - spent);
  const bool answered = call();
  ::grpc::Status status;
  if (!answered)
    status = call_->Finish();
  const WaitEnd end = deadline_.end();
  if (answered && end == WaitEnd::Answered)
    return {};
  if (answered)
    status = call_->Finish();
  over_ = server_.status_of(end, status);
  return over_;
}

/// Write messages, buffered to be sent together with the next one.
bool Stream::write(Span<const v1::SessionRequest> messages) {
  for (const v1::SessionRequest &message : messages)
    if (!call_->Write(message, ::grpc::WriteOptions().set_buffer_hint()))
      return false;
  return true;
}

bool Stream::exchange(Span<const v1::SessionRequest> before, const v1::SessionRequest &request,
                      v1::SessionResponse &response) {
  return write(before) && call_->Write(request) && call_->Read(&response);
}

Status Stream::fail(Status why) {
  over_ = std::move(why);
  context_.TryCancel();
  call_->Finish();
  return over_;
}

Status Stream::finish(Span<const v1::SessionRequest> messages) {
  if (!over_.ok())
    return failed_precondition("the session is over: " + over_.message());
  deadline_.begin_last(std::min(server_.timeout, closing));
  // Where they cannot be written, the status says why.
  (void)write(messages);
  call_->WritesDone();
  const ::grpc::Status status = call_->Finish();
  const WaitEnd end = deadline_.end();
  over_ = unavailable("it was closed");
  return end == WaitEnd::Answered && status.ok() ? Status() : server_.status_of(end, status);
}

Status Stream::conclude(Span<const v1::SessionRequest> before, const v1::SessionRequest &last,
                        v1::SessionResponse &response) {
  if (!over_.ok())
    return failed_precondition("the session is over: " + over_.message());
  deadline_.begin_last(server_.timeout);
  const bool answered = write(before) && call_->Write(last, ::grpc::WriteOptions().set_last_message()) && call_->Read(&response);
  const ::grpc::Status status = call_->Finish();
  const WaitEnd end = deadline_.end();
  over_ = unavailable("it was closed");
  return answered && end == WaitEnd::Answered && status.ok() ? Status() : server_.status_of(end, status);
}

void Stream::close() noexcept {
  if (!over_.ok())
    return;
  over_ = unavailable("it was closed");
  deadline_.begin_last(std::min(server_.timeout, closing));
  call_->WritesDone();
  call_->Finish();
  deadline_.end();
}

} // namespace policybridge

#include "stream.h"

#include "deadline.h"

#include <algorithm>

namespace policybridge {
namespace {

/// How long to wait for a server to confirm the end of a session.
constexpr std::chrono::microseconds closing = std::chrono::seconds(1);

} // namespace

Status Server::status_of(const ::grpc::Status &failure) const {
  if (failure.ok())
    return unavailable("the server at " + target + " ended the session");
  const std::string details = failure.error_message().empty() ? "no reason given" : failure.error_message();
  const ::grpc::StatusCode code = failure.error_code();
  if (code == ::grpc::StatusCode::UNAVAILABLE || code == ::grpc::StatusCode::CANCELLED)
    return unavailable("the server at " + target + ": " + details);
  return {status_code_from(code), details};
}

Status Server::late() const {
  return deadline_exceeded("no answer from the server at " + target + " within " + seconds(timeout));
}

Stream::Stream(const std::shared_ptr<::grpc::Channel> &channel, Server server, std::shared_ptr<CallDeadlines> deadlines)
    : server_(std::move(server)), deadlines_(std::move(deadlines)), stub_(v1::PolicyService::NewStub(channel)) {
  deadlines_->add(deadline_);
  context_.set_initial_metadata_corked(true);
  call_ = stub_->Session(&context_);
}

Stream::~Stream() {
  close();
  deadlines_->remove(deadline_);
}

Status Stream::request(const v1::SessionRequest *before, const v1::SessionRequest &request,
                       v1::SessionResponse &response) {
  if (!over_.ok())
    return failed_precondition("the session is over: " + over_.message());
  deadline_.begin(CallDeadline::Clock::now() + server_.timeout);
  const bool answered = exchange(before, request, response);
  ::grpc::Status status;
  if (!answered)
    status = call_->Finish();
  const bool late = deadline_.end();
  if (answered && !late)
    return {};
  if (answered)
    status = call_->Finish();
  over_ = late ? server_.late() : server_.status_of(status);
  return over_;
}

bool Stream::exchange(const v1::SessionRequest *before, const v1::SessionRequest &request,
                      v1::SessionResponse &response) {
  // Buffered, to be sent together with the next message.
  if (before && !call_->Write(*before, ::grpc::WriteOptions().set_buffer_hint()))
    return false;
  return call_->Write(request) && call_->Read(&response);
}

Status Stream::fail(Status why) {
  over_ = std::move(why);
  context_.TryCancel();
  call_->Finish();
  return over_;
}

void Stream::close() noexcept {
  if (!over_.ok())
    return;
  over_ = unavailable("it was closed");
  deadline_.begin(CallDeadline::Clock::now() + std::min(server_.timeout, closing));
  deadlines_->hurry();
  call_->WritesDone();
  call_->Finish();
  deadline_.end();
}

} // namespace policybridge

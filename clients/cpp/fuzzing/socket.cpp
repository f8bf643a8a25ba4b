// Fuzzes the client against a hostile server. The input's first byte chooses the advice's spec, and whether the session
// explores; the server sends the other bytes on every connection, then closes its side.
#include "fuzzing.h"
#include "policybridge/tensor.h"
#include "socket.h"

#include <array>
#include <mutex>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

namespace policybridge {

namespace {

constexpr unsigned char explores = 128;
constexpr int decisions = 3;

/// Sends the same bytes on every connection.
class Server {
public:
  Server() : path_("/tmp/pb-fuzz-" + std::to_string(::getpid())), listener_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    ::unlink(path_.c_str());
    promise(::bind(listener_, reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0, "a socket is bound");
    promise(::listen(listener_, 4) == 0, "a socket listens");
    std::thread([this] { run(); }).detach();
  }

  const std::string &path() const { return path_; }

  void set_answer(std::string_view answer) {
    const std::lock_guard<std::mutex> guard(mutex_);
    answer_ = answer;
  }

private:
  void run() {
    int held = -1;
    while (true) {
      const int connection = ::accept(listener_, nullptr, nullptr);
      // Keep a connection open until the next one, so that its client can still send.
      if (held >= 0)
        ::close(held);
      held = connection;
      const std::lock_guard<std::mutex> guard(mutex_);
      static_cast<void>(::send(connection, answer_.data(), answer_.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
      ::shutdown(connection, SHUT_WR);
    }
  }

  std::string path_;
  int listener_;
  std::mutex mutex_;
  std::string answer_;
};

Server &server() {
  // Never destroyed: its thread runs until the process ends.
  static Server *const running = new Server();
  return *running;
}

TensorSpec advice_of(unsigned char first) {
  switch (first % 5) {
  case 0:
    return TensorSpec::of<std::int64_t>("advice");
  case 1:
    return TensorSpec::of<float>("advice", {-1, 2});
  case 2:
    return TensorSpec{"advice", ElementType::String, {-1}};
  case 3:
    return TensorSpec::of<bool>("advice", {3});
  default:
    return TensorSpec{"advice", ElementType::String, {1}};
  }
}

void use(Session &session, const Signature &signature) {
  const std::array<char, 8> observation = {};
  AdviceBuffer advice;
  for (std::uint64_t step = 1; step <= decisions; ++step) {
    const Status status = session.evaluate(step, {observation.data(), observation.size()}, advice);
    promise(status.ok() || !session.is_open(), "a session is over after an error");
    if (!status.ok())
      return;
    Tensor tensor(signature.advice);
    std::string_view bytes(advice.bytes.data(), advice.bytes.size());
    static_cast<void>(read_session_form(bytes, tensor));
  }
  const Status status = session.report(Outcome{{{"size", 1.0}}, "ok"});
  promise(status.ok() || !session.is_open(), "a session is over after an error");
}

} // namespace

} // namespace policybridge

extern "C" int LLVMFuzzerTestOneInput(const unsigned char *bytes, std::size_t size) {
  using namespace policybridge;
  std::string_view data(reinterpret_cast<const char *>(bytes), size);
  const unsigned char first = take_byte(data);
  const Signature signature{{TensorSpec::of<std::int64_t>("x")}, advice_of(first)};
  OpenOptions options;
  options.policy.name = "echo";
  if (first & explores)
    options.exploration = Exploration{1, 0, 0};
  server().set_answer(data);
  SocketConnection connection(server().path(), {std::chrono::seconds(20), {}, {-1, -1}});
  Result<std::unique_ptr<Session>> session = connection.open(options, signature);
  if (session.ok())
    use(**session, signature);
  static_cast<void>(connection.report_outcome("1", Outcome{}));
  return 0;
}

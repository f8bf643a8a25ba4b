#include "socket.h"

#include "guard.h"
#include "protocol.h"
#include "utf8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unistd.h>

namespace policybridge {

namespace {

Result<std::string> round_trip(UnixSocket &socket, std::string_view line) {
  std::string answer;
  Status status = socket.send({line});
  if (status.ok())
    status = socket.receive_line(answer);
  if (!status.ok())
    return status;
  return answer;
}

/// The same for all clients: from the root, without empty parts and those that are a dot.
std::string absolute_path(const std::string &path) {
  std::string whole;
  if (path.empty() || path.front() != '/') {
    char folder[4096];
    whole = getcwd(folder, sizeof folder) ? folder : "";
    whole = whole == "/" ? "" : whole;
  }
  for (std::size_t at = 0; at <= path.size();) {
    const std::string part = path.substr(at, path.find('/', at) - at);
    at += part.size() + 1;
    if (!part.empty() && part != ".")
      whole.append("/").append(part);
  }
  return whole;
}

/// One connection is one session.
class SocketSession final : public Session {
public:
  SocketSession(UnixSocket socket, const std::string &path, const WaitOptions &wait, SessionInfo info,
                const OpenOptions &options, const Signature &signature)
      : socket_(std::move(socket)), path_(path), wait_(wait), info_(std::move(info)), header_(protocol::header_line(signature)),
        context_(protocol::context_line(options.context)), explores_(options.exploration.has_value()) {
    lay_out(signature);
  }

  Result<SessionInfo> info() const override { return info_; }

  Status evaluate(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) override {
    return ended_by_failure([&] { return request(step, observation, advice); });
  }

  Status bind(const Signature &signature) override {
    return guarded([&]() -> Status {
      header_ = protocol::header_line(signature);
      lay_out(signature);
      return {};
    });
  }

  Status set_context(std::string_view name) override {
    return guarded([&]() -> Status {
      if (!is_utf8(name))
        return invalid_argument("a context's name is not UTF-8: " + quoted(name));
      context_ = protocol::context_line(name);
      before_ = header_ + context_;
      return {};
    });
  }

  Status report(const Outcome &outcome) override {
    return ended_by_failure([&] { return request_recording(protocol::outcome_line(outcome)); });
  }

  Status conclude(const Outcome &outcome) override {
    if (!is_open())
      return failed_precondition("the session is over");
    socket_.begin_last_exchange(wait_.timeout);
    Status status = guarded([&] { return request_concluding(outcome); });
    socket_.close();
    return status;
  }

  Status finish() override {
    if (!is_open())
      return failed_precondition("the session is over");
    socket_.begin_last_exchange(closing);
    Status status = guarded([&] { return request_recording(protocol::end_line()); });
    socket_.close();
    return status;
  }

  Status send_record(std::string_view record, std::chrono::microseconds timeout) override {
    return guarded([&]() -> Status {
      WaitOptions wait = wait_;
      wait.timeout = std::min(wait.timeout, timeout);
      wait.interrupts = {-1, -1};
      Result<UnixSocket> socket = UnixSocket::connect(path_, wait);
      if (!socket.ok())
        return socket.status();
      Result<std::string> line = round_trip(*socket, record);
      return line.ok() ? protocol::parse_recorded(*line) : line.status();
    });
  }

  std::string server() const override { return "socket:" + absolute_path(path_); }

  void disregard_interrupts() noexcept override { socket_.disregard_interrupts(); }

  Result<std::string> form(const FormReference &form) override {
    std::string bytes;
    const Status status = ended_by_failure([&] { return request_form(form, bytes); });
    return status.ok() ? Result<std::string>(std::move(bytes)) : status;
  }

  Status decided(std::uint32_t count, std::chrono::nanoseconds time, std::string_view payload) override {
    if (!is_open())
      return failed_precondition("the session is over");
    return guarded([&]() -> Status {
      later_.append(before_).append(protocol::decided_line(count, time, explores_)).append(payload).append("\n");
      sent();
      return later_.size() < send_at ? Status() : ended_by_failure([&] { return send_later(); });
    });
  }

  bool is_open() const noexcept override { return socket_.is_open(); }

  void close() noexcept override {
    if (is_open() && !later_.empty()) {
      socket_.begin_exchange();
      // A record that finds no way is lost; the compilation is over.
      (void)send_later();
    }
    socket_.close();
  }

private:
  /// Bytes of decisions that wait for the next message.
  static constexpr std::size_t send_at = std::size_t{64} << 10;

  /// How long to wait for a server to confirm the end of a session.
  static constexpr std::chrono::microseconds closing = std::chrono::seconds(1);

  void lay_out(const Signature &signature) {
    before_ = header_ + context_;
    fixed_features_ = signature.has_fixed_features();
    fixed_advice_ = signature.advice.is_fixed();
    reply_.resize(1 + (fixed_advice_ ? static_cast<std::size_t>(signature.advice.byte_size()) + chance_size()
                                     : sizeof(std::uint64_t)));
  }

  std::size_t chance_size() const { return explores_ ? sizeof(float) : 0; }

  template <class Call> Status ended_by_failure(Call &&call) {
    if (!is_open())
      return failed_precondition("the session is over");
    socket_.begin_exchange();
    Status status = guarded(call);
    // Whatever failed: an answer that comes late would be taken for the next request's.
    if (!status.ok())
      close();
    return status;
  }

  Status request(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) {
    const auto line =
        fixed_features_ ? protocol::ObservationLine(step - 1) : protocol::ObservationLine(step - 1, observation.size());
    if (Status status = socket_.send({later_, before_, line.text(), observation, "\n"}); !status.ok())
      return status;
    sent_all();
    if (Status status = receive_status(reply_.size()); !status.ok())
      return status;
    return fixed_advice_ ? take_fixed(advice) : take_varying(advice);
  }

  Status request_recording(const std::string &line) {
    if (Status status = socket_.send({later_, before_, line}); !status.ok())
      return status;
    sent_all();
    return receive_recording();
  }

  Status request_concluding(const Outcome &outcome) {
    // Only a server with forms knows the line that ends a session.
    const bool ends = !info_.forms.empty();
    const std::string end = ends ? protocol::end_line() : "";
    Status status = request_recording(protocol::outcome_line(outcome) + end);
    return status.ok() && ends ? receive_recording() : status;
  }

  Status receive_recording() {
    if (Status status = receive_status(1); !status.ok())
      return status;
    std::string answer;
    if (Status status = socket_.receive_line(answer); !status.ok())
      return status;
    return protocol::parse_recorded(answer);
  }

  Status request_form(const FormReference &form, std::string &bytes) {
    const std::string line = protocol::form_line(form.digest);
    if (Status status = socket_.send({line}); !status.ok())
      return status;
    if (Status status = receive_status(1); !status.ok())
      return status;
    bytes.resize(static_cast<std::size_t>(form.bytes));
    return socket_.receive(bytes.data(), bytes.size());
  }

  Status send_later() {
    Status status = socket_.send({later_});
    later_.clear();
    return status;
  }

  /// The header and context have gone out; the next observation goes alone.
  void sent_all() {
    later_.clear();
    sent();
  }

  void sent() {
    before_.clear();
    header_.clear();
    context_.clear();
  }

  /// Receive the status byte, and where it is 0 the rest of the reply's first `size` bytes.
  Status receive_status(std::size_t size) {
    if (Status status = socket_.receive(reply_.data(), 1); !status.ok())
      return status;
    if (reply_[0] == 0)
      return size > 1 ? socket_.receive(reply_.data() + 1, size - 1) : Status();
    if (reply_[0] != 1)
      return invalid_argument("the server's answer does not follow the protocol: it begins with the byte " +
                              std::to_string(static_cast<unsigned char>(reply_[0])));
    std::string line;
    if (Status status = socket_.receive_line(line); !status.ok())
      return status;
    return protocol::parse_failure(line);
  }

  Status take_fixed(AdviceBuffer &advice) {
    char *end = reply_.data() + reply_.size() - chance_size();
    advice.bytes.assign(reply_.data() + 1, end);
    take_chance(end, advice);
    return {};
  }

  Status take_varying(AdviceBuffer &advice) {
    std::uint64_t size = 0;
    std::memcpy(&size, reply_.data() + 1, sizeof size);
    if (size > protocol::max_advice)
      return resource_exhausted("the server announces an advice of " + std::to_string(size) + " bytes; at most " +
                                std::to_string(protocol::max_advice) + " are taken");
    advice.bytes.resize(static_cast<std::size_t>(size));
    if (Status status = socket_.receive(advice.bytes.data(), advice.bytes.size()); !status.ok())
      return status;
    char chance[sizeof(float)];
    if (Status status = socket_.receive(chance, chance_size()); !status.ok())
      return status;
    take_chance(chance, advice);
    return {};
  }

  void take_chance(const char *from, AdviceBuffer &advice) const {
    float chance = std::nanf("");
    std::memcpy(&chance, from, chance_size());
    advice.log_probability = std::isnan(chance) ? std::nullopt : std::optional<float>(chance);
  }

  UnixSocket socket_;
  const std::string path_;
  const WaitOptions wait_;
  SessionInfo info_;
  std::string header_;  // until it has been sent
  std::string context_; // likewise
  std::string later_;   // decisions that were made here, to be sent with the next message
  std::string before_;  // sent together with the next observation, which saves a system call
  bool fixed_features_ = false;
  bool fixed_advice_ = false;
  bool explores_;
  std::vector<char> reply_; // the status byte, and the advice or its size
};

} // namespace

Result<std::unique_ptr<Session>> SocketConnection::open(const OpenOptions &options, const Signature &signature) {
  using Opened = Result<std::unique_ptr<Session>>;
  return guarded([&]() -> Opened {
    Result<UnixSocket> socket = UnixSocket::connect(path_, wait_);
    if (!socket.ok())
      return socket.status();
    Result<std::string> line = round_trip(*socket, protocol::hello_line(options));
    if (!line.ok())
      return line.status();
    Result<SessionInfo> info = protocol::parse_opened(*line);
    if (!info.ok())
      return info.status();
    return std::unique_ptr<Session>(new SocketSession(std::move(*socket), path_, wait_, std::move(*info), options, signature));
  });
}

Status SocketConnection::check() {
  return guarded([&]() -> Status { return UnixSocket::connect(path_, wait_).status(); });
}

Status SocketConnection::report_outcome(const std::string &session_id, const Outcome &outcome) {
  return guarded([&]() -> Status {
    Result<UnixSocket> socket = UnixSocket::connect(path_, wait_);
    if (!socket.ok())
      return socket.status();
    Result<std::string> line = round_trip(*socket, protocol::report_line(session_id, outcome));
    return line.ok() ? protocol::parse_recorded(*line) : line.status();
  });
}

Result<std::shared_ptr<Connection>> connect_socket(std::string_view target, const ConnectOptions &options) {
  using Made = Result<std::shared_ptr<Connection>>;
  return guarded([&]() -> Made {
    return {
        std::make_shared<SocketConnection>(std::string(target), WaitOptions{options.timeout, options.spin, options.interrupts})};
  });
}

} // namespace policybridge

#include "guard.h"
#include "policybridge/connection.h"
#include "protocol.h"
#include "unix_socket.h"
#include "utf8.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace policybridge {

namespace {

constexpr auto look_again = std::chrono::milliseconds(1);

Status failed(const std::string &what, const std::string &path) {
  return unavailable("could not " + what + " " + path + ": " + std::strerror(errno));
}

/// The two files of a channel. They are opened in LLVM's order, and opening waits no longer than the timeout.
struct Files {
  Descriptor replies;
  Descriptor observations;
  // A reading end of our own: writing to a FIFO without a reader would raise SIGPIPE in the compiler.
  Descriptor unread;
  // Whether the replies are a regular file, recorded before, which LLVM accepts too. Then the end of the file is final.
  bool recorded = false;

  static Result<Files> open(const std::string &base, std::chrono::microseconds timeout) {
    const std::string in = base + ".in";
    const std::string out = base + ".out";
    Files files;
    files.replies = Descriptor(::open(in.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!files.replies.is_open())
      return failed("read", in);
    const Deadline deadline(timeout);
    while (true) {
      files.observations = Descriptor(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0666));
      if (files.observations.is_open())
        break;
      if (errno != ENXIO && errno != EINTR)
        return failed("write", out);
      if (!deadline.milliseconds_left())
        return unavailable("no host has opened " + out + " for reading within " + seconds(timeout));
      std::this_thread::sleep_for(look_again);
    }
    struct stat about = {};
    files.recorded = ::fstat(files.replies.get(), &about) == 0 && S_ISREG(about.st_mode);
    if (::fstat(files.observations.get(), &about) == 0 && S_ISFIFO(about.st_mode))
      files.unread = Descriptor(::open(out.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    return files;
  }
};

Status check_fixed(const Signature &signature) {
  if (signature.has_fixed_features() && signature.advice.is_fixed())
    return {};
  return invalid_argument("LLVM's interactive channel carries tensors of fixed size; the features or the advice vary");
}

class PipeSession final : public Session {
public:
  PipeSession(Files files, std::string base, std::chrono::microseconds timeout, const OpenOptions &options,
              const Signature &signature, std::shared_ptr<std::atomic<bool>> taken)
      : files_(std::move(files)), base_(std::move(base)), timeout_(timeout),
        header_(protocol::header_line(signature)), context_(protocol::context_line(options.context)),
        advice_size_(static_cast<std::size_t>(signature.advice.byte_size())), taken_(std::move(taken)) {}

  ~PipeSession() override { PipeSession::close(); }

  Result<SessionInfo> info() const override {
    return unimplemented("LLVM's interactive channel does not carry the session's policy version");
  }

  Status evaluate(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) override {
    if (!is_open())
      return failed_precondition("the session is over");
    Status status = guarded([&] { return request(step, observation, advice); });
    if (!status.ok())
      close();
    return status;
  }

  Status bind(const Signature &signature) override {
    return guarded([&]() -> Status {
      if (Status status = check_fixed(signature); !status.ok())
        return status;
      header_ = protocol::header_line(signature);
      advice_size_ = static_cast<std::size_t>(signature.advice.byte_size());
      return {};
    });
  }

  Status set_context(std::string_view name) override {
    return guarded([&]() -> Status {
      if (!is_utf8(name))
        return invalid_argument("a context's name is not UTF-8: " + quoted(name));
      context_ = protocol::context_line(name);
      return {};
    });
  }

  Status report(const Outcome &) override { return unimplemented("LLVM's interactive channel carries no outcomes"); }

  bool is_open() const noexcept override { return files_.replies.is_open(); }

  void close() noexcept override {
    if (is_open())
      taken_->store(false);
    files_ = {};
  }

private:
  Status request(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) {
    const protocol::ObservationLine line(step - 1);
    const Deadline deadline(timeout_);
    message_.assign(header_).append(context_).append(line.text()).append(observation).append("\n");
    if (Status status = send(message_, deadline); !status.ok())
      return status;
    header_.clear();
    context_.clear();
    advice.bytes.resize(advice_size_);
    advice.log_probability.reset();
    return receive(advice.bytes, deadline);
  }

  Status send(std::string_view bytes, const Deadline &deadline) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(files_.observations.get(), bytes.data(), bytes.size());
      if (written >= 0)
        bytes.remove_prefix(static_cast<std::size_t>(written));
      else if (errno == EAGAIN) {
        if (Status status = wait(files_.observations.get(), POLLOUT, deadline); !status.ok())
          return status;
      } else if (errno != EINTR)
        return failed("write", base_ + ".out");
    }
    return {};
  }

  Status receive(std::vector<char> &to, const Deadline &deadline) {
    std::size_t got = 0;
    while (got < to.size()) {
      const ssize_t count = ::read(files_.replies.get(), to.data() + got, to.size() - got);
      if (count > 0) {
        got += static_cast<std::size_t>(count);
        continue;
      }
      if (count < 0 && errno != EAGAIN && errno != EINTR)
        return failed("read", base_ + ".in");
      if (count == 0 && files_.recorded)
        return unavailable(base_ + ".in ends without an answer");
      // No data yet, or no writer any more; poll tells which.
      if (Status status = wait(files_.replies.get(), POLLIN, deadline); !status.ok())
        return status;
    }
    return {};
  }

  Status wait(int fd, short events, const Deadline &deadline) {
    while (true) {
      pollfd pipes[2] = {{fd, events, 0}, {files_.replies.get(), 0, 0}};
      // Once the time is over, not even for a byte that is there already: a host that writes one now and then would be
      // waited for endlessly.
      const int left = deadline.milliseconds_left();
      const int ready = left ? ::poll(pipes, 2, left) : 0;
      if (ready == 0)
        return deadline_exceeded("no answer on " + base_ + ".in within " + seconds(timeout_));
      if (ready < 0 && errno != EINTR)
        return failed("wait for", base_ + ".in");
      if (ready > 0 && (pipes[0].revents & events))
        return {};
      if (ready > 0 && ((pipes[0].revents | pipes[1].revents) & (POLLHUP | POLLERR | POLLNVAL)))
        return unavailable("the host that answered on " + base_ + ".in went away");
    }
  }

  Files files_;
  std::string base_;
  std::chrono::microseconds timeout_;
  std::string header_, context_; // lines that come before the next observation; empty: the last ones still hold
  std::string message_;
  std::size_t advice_size_;
  std::shared_ptr<std::atomic<bool>> taken_;
};

/// The channel of one base; two sessions at a time would corrupt each other.
class PipeConnection final : public Connection {
public:
  PipeConnection(std::string base, std::chrono::microseconds timeout) : base_(std::move(base)), timeout_(timeout) {}

  Result<std::unique_ptr<Session>> open(const OpenOptions &options, const Signature &signature) override {
    using Opened = Result<std::unique_ptr<Session>>;
    return guarded([&]() -> Opened {
      if (Status status = check_fixed(signature); !status.ok())
        return status;
      if (options.exploration)
        return invalid_argument("LLVM's interactive channel cannot carry an exploration");
      if (taken_->exchange(true))
        return failed_precondition("the channel " + base_ + " has a session already; one base is for one compilation");
      Result<Files> files = Files::open(base_, timeout_);
      if (!files.ok()) {
        taken_->store(false);
        return files.status();
      }
      return std::unique_ptr<Session>(new PipeSession(std::move(*files), base_, timeout_, options, signature, taken_));
    });
  }

  Status check() override {
    return guarded([&]() -> Status {
      for (const char *end : {".in", ".out"})
        if (::access((base_ + end).c_str(), F_OK) != 0)
          return failed("reach", base_ + end);
      return {};
    });
  }

  Status report_outcome(const std::string &, const Outcome &) override {
    return unimplemented("LLVM's interactive channel carries no outcomes");
  }

private:
  const std::string base_;
  const std::chrono::microseconds timeout_;
  std::shared_ptr<std::atomic<bool>> taken_ = std::make_shared<std::atomic<bool>>(false);
};

} // namespace

Result<std::shared_ptr<Connection>> connect_pipe(std::string_view target, const ConnectOptions &options) {
  using Made = Result<std::shared_ptr<Connection>>;
  return guarded([&]() -> Made { return {std::make_shared<PipeConnection>(std::string(target), options.timeout)}; });
}

} // namespace policybridge

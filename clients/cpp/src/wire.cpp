#include "wire.h"

#include "protocol.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

namespace policybridge {

namespace {

constexpr std::size_t buffer_size = 16 << 10;

/// Longer than anybody waits, and short enough for every clock.
constexpr std::chrono::microseconds longest = std::chrono::hours(24 * 365);

timeval kernel_time(std::chrono::microseconds time) {
  const auto count = std::clamp(time, std::chrono::microseconds(1), longest).count();
  return {static_cast<time_t>(count / 1'000'000), static_cast<suseconds_t>(count % 1'000'000)};
}

bool is_gone(int error) { return error == EPIPE || error == ECONNRESET; }

} // namespace

Deadline::Deadline(std::chrono::microseconds timeout)
    : end_(std::chrono::steady_clock::now() + std::min(timeout, longest)) {}

int Deadline::milliseconds_left() const noexcept {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max()));
}

std::string seconds(std::chrono::microseconds time) {
  std::array<char, 32> text;
  const double value = std::chrono::duration<double>(time).count();
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 6);
  return std::string(text.data(), result.ptr) + " s";
}

Descriptor &Descriptor::operator=(Descriptor &&other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.release();
  }
  return *this;
}

Descriptor::~Descriptor() { close(); }

void Descriptor::close() noexcept {
  if (fd_ >= 0)
    ::close(release());
}

int Descriptor::release() noexcept { return std::exchange(fd_, -1); }

Wire::Wire(Descriptor socket, std::string path, std::chrono::microseconds timeout)
    : socket_(std::move(socket)), path_(std::move(path)), timeout_(timeout), buffer_(new char[buffer_size]) {}

Result<Wire> Wire::connect(const std::string &path, std::chrono::microseconds timeout,
                           std::chrono::microseconds spin) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path || path.find('\0') != std::string::npos)
    return invalid_argument("the socket's path is longer than " + std::to_string(sizeof address.sun_path - 1) +
                            " bytes, or holds a null byte: " + path);
  std::memcpy(address.sun_path, path.data(), path.size());
  Wire wire(Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), path, timeout);
  if (!wire.is_open())
    return wire.failed("reach", errno);
  // The kernel's own timeouts: they cost a decision no system call, and bound connecting too.
  const timeval limit = kernel_time(timeout);
  const int fd = wire.socket_.get();
  if (::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
      ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0)
    return wire.failed("reach", errno);
  // A signal ends the attempt, and nothing has been sent: the next one starts afresh.
  int failed = 0;
  do {
    failed = ::connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof address);
  } while (failed && errno == EINTR);
  if (failed)
    return wire.failed("reach", errno);
  wire.spin_ = spin;
  return wire;
}

Status Wire::send(Span<const std::string_view> parts) {
  std::array<iovec, 4> pieces = {};
  std::size_t left = 0;
  for (std::size_t n = 0; n < parts.size(); ++n) {
    pieces[n] = {const_cast<char *>(parts[n].data()), parts[n].size()};
    left += parts[n].size();
  }
  const Deadline deadline(timeout_);
  msghdr message = {};
  message.msg_iov = pieces.data();
  message.msg_iovlen = parts.size();
  while (true) {
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (is_gone(errno))
        return {};
      if (errno != EINTR)
        return failed("send to", errno);
    } else if ((left -= static_cast<std::size_t>(sent)) == 0) {
      return {};
    }
    for (auto gone = static_cast<std::size_t>(std::max<ssize_t>(sent, 0)); gone;) {
      const std::size_t step = std::min(gone, message.msg_iov->iov_len);
      message.msg_iov->iov_base = static_cast<char *>(message.msg_iov->iov_base) + step;
      gone -= step;
      if (!(message.msg_iov->iov_len -= step)) {
        ++message.msg_iov;
        --message.msg_iovlen;
      }
    }
    if (!deadline.milliseconds_left())
      return failed("send to", EAGAIN);
  }
}

/// As recv, but awake for a while.
ssize_t Wire::receive_awake(char *to, std::size_t size) {
  using Clock = std::chrono::steady_clock;
  if (spin_.count() && wakefulness_.is_due()) {
    const Clock::time_point end = Clock::now() + spin_;
    do {
      const ssize_t got = ::recv(socket_.get(), to, size, MSG_DONTWAIT);
      if (got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
        wakefulness_.paid();
        return got;
      }
    } while (Clock::now() < end);
    wakefulness_.cost();
  }
  return ::recv(socket_.get(), to, size, 0);
}

/// Give what there is, at least one byte. The first wait of a call is the kernel's; `waited` tells the later ones,
/// which get what is left of the time.
Result<std::size_t> Wire::receive_some(char *to, std::size_t size, const Deadline &deadline, bool &waited) {
  while (true) {
    if (std::exchange(waited, true)) {
      pollfd wanted = {socket_.get(), POLLIN, 0};
      const int ready = ::poll(&wanted, 1, deadline.milliseconds_left());
      if (ready == 0)
        return failed("hear from", EAGAIN);
      if (ready < 0 && errno != EINTR)
        return failed("hear from", errno);
      if (ready < 0)
        continue;
    }
    const ssize_t got = receive_awake(to, size);
    if (got > 0)
      return static_cast<std::size_t>(got);
    if (got == 0 || is_gone(errno))
      return gone();
    if (errno != EINTR)
      return failed("hear from", errno);
  }
}

Status Wire::fill(const Deadline &deadline, bool &waited) {
  Result<std::size_t> got = receive_some(buffer_.get(), buffer_size, deadline, waited);
  if (!got.ok())
    return got.status();
  begin_ = 0;
  end_ = *got;
  return {};
}

Status Wire::receive(char *to, std::size_t size) {
  const Deadline deadline(timeout_);
  bool waited = false;
  while (true) {
    const std::size_t held = std::min(size, end_ - begin_);
    if (held) // not of nothing, which may be to nowhere
      std::memcpy(to, buffer_.get() + begin_, held);
    begin_ += held;
    size -= held;
    if (!size)
      return {};
    to += held;
    if (size < buffer_size) {
      if (Status status = fill(deadline, waited); !status.ok())
        return status;
      continue;
    }
    Result<std::size_t> got = receive_some(to, size, deadline, waited);
    if (!got.ok())
      return got.status();
    to += *got;
    size -= *got;
  }
}

Status Wire::receive_line(std::string &line) {
  const Deadline deadline(timeout_);
  bool waited = false;
  line.clear();
  while (line.size() <= protocol::max_line) {
    const std::string_view held(buffer_.get() + begin_, end_ - begin_);
    const std::size_t newline = held.find('\n');
    const std::size_t taken = newline == std::string_view::npos ? held.size() : newline + 1;
    line.append(held.substr(0, taken));
    begin_ += taken;
    if (newline != std::string_view::npos)
      return {};
    if (Status status = fill(deadline, waited); !status.ok())
      return status;
  }
  return resource_exhausted("the server at " + path_ + " answered a line of more than " +
                            std::to_string(protocol::max_line) + " bytes");
}

Status Wire::gone() const { return unavailable("the server at " + path_ + " went away without an answer"); }

Status Wire::failed(const char *what, int error) const {
  const std::string text = std::string("could not ") + what + " the server at " + path_;
  if (error == EAGAIN || error == EWOULDBLOCK)
    return deadline_exceeded(text + " within " + seconds(timeout_));
  return unavailable(text + ": " + std::strerror(error));
}

} // namespace policybridge

#include "unix_socket.h"

#include "lacking.h"
#include "protocol.h"
#include "utf8.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

namespace policybridge {

namespace {

constexpr std::size_t buffer_size = 16 << 10;

timeval kernel_time(std::chrono::microseconds time) {
  const auto count = std::clamp(time, std::chrono::microseconds(1), longest_timeout).count();
  return {static_cast<time_t>(count / 1'000'000), static_cast<suseconds_t>(count % 1'000'000)};
}

bool is_gone(int error) { return error == EPIPE || error == ECONNRESET; }

std::string could_not(const char *action, const std::string &path) {
  return std::string("could not ") + action + " the server at " + path;
}

/// Drop the first `size` bytes of the data to send.
void advance(msghdr &message, std::size_t size) {
  while (size >= message.msg_iov->iov_len && message.msg_iovlen > 1) {
    size -= message.msg_iov->iov_len;
    ++message.msg_iov;
    --message.msg_iovlen;
  }
  message.msg_iov->iov_base = static_cast<char *>(message.msg_iov->iov_base) + size;
  message.msg_iov->iov_len -= size;
}

} // namespace

UnixSocket::UnixSocket(Descriptor socket, std::string path, const WaitOptions &options)
    : socket_(std::move(socket)), path_(std::move(path)), options_(options), deadline_(options.timeout),
      buffer_(new char[buffer_size]) {}

Result<UnixSocket> UnixSocket::connect(const std::string &path, const WaitOptions &options) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.find('\0') != std::string::npos)
    return invalid_argument("the path of a socket holds no null byte, as this one does: " + quoted(path));
  UnixSocket connected(Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), path, options);
  // In the words of the Python client, which has them from CPython.
  if (path.size() >= sizeof address.sun_path)
    return unavailable(could_not("reach", path) + ": AF_UNIX path too long; a socket's path has at most " +
                       std::to_string(sizeof address.sun_path - 1) + " bytes: choose a shorter one");
  std::memcpy(address.sun_path, path.data(), path.size());
  if (!connected.is_open())
    return connected.failed("reach", errno);
  // With time-outs in the kernel, a decision needs no system call to wait, and connecting is bounded too.
  const timeval limit = kernel_time(options.timeout);
  const int fd = connected.socket_.get();
  if (::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
      ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0)
    return connected.failed("reach", errno);
  // A signal ends the attempt before anything is sent; the next attempt starts afresh.
  while (::connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
    if (errno != EINTR || !connected.deadline_.milliseconds_left())
      return connected.failed("reach", errno == EINTR ? EAGAIN : errno);
  return connected;
}

Status UnixSocket::wait(short events, const char *action) {
  waited_ = true;
  pollfd sources[] = {
      {socket_.get(), events, 0}, {options_.interrupts[0], POLLIN, 0}, {options_.interrupts[1], POLLIN, 0}};
  int ready = 0;
  do {
    const int left = deadline_.milliseconds_left();
    // Not even for a byte that is there already: a server that sends one now and then would be waited for endlessly.
    if (!left)
      return failed(action, EAGAIN);
    ready = ::poll(sources, std::size(sources), left);
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0)
    return failed(action, ready ? errno : EAGAIN);
  if (sources[0].revents)
    return {};
  return {StatusCode::Cancelled, "the wait for the server at " + path_ + " was interrupted"};
}

Status UnixSocket::send(Span<const std::string_view> parts) {
  std::array<iovec, 5> pieces = {};
  std::size_t left = 0;
  for (std::size_t n = 0; n < parts.size(); ++n) {
    pieces[n] = {const_cast<char *>(parts[n].data()), parts[n].size()};
    left += parts[n].size();
  }
  msghdr message = {};
  message.msg_iov = pieces.data();
  message.msg_iovlen = parts.size();
  while (true) {
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && is_gone(errno))
      return {};
    if (sent < 0 && errno != EINTR && errno != EAGAIN)
      return failed("send to", errno);
    if (sent >= 0 && (left -= static_cast<std::size_t>(sent)) == 0)
      return {};
    if (sent > 0)
      advance(message, static_cast<std::size_t>(sent));
    if (Status status = wait(POLLOUT, "send to"); !status.ok())
      return status;
  }
}

/// As recv, but first poll in a busy loop where that pays.
ssize_t UnixSocket::receive_spinning(char *to, std::size_t size) {
  using Clock = std::chrono::steady_clock;
  if (options_.spin.count() && spin_backoff_.should_spin()) {
    const Clock::time_point end = Clock::now() + options_.spin;
    do {
      const ssize_t got = ::recv(socket_.get(), to, size, MSG_DONTWAIT);
      if (got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
        spin_backoff_.succeeded();
        return got;
      }
    } while (Clock::now() < end);
    spin_backoff_.failed();
  }
  return ::recv(socket_.get(), to, size, 0);
}

/// Give the bytes that have arrived, at least one. Where nothing can interrupt the wait, the first one of an exchange
/// is left to recv and the kernel's time-out. Each later one gets the time that is left.
Result<std::size_t> UnixSocket::receive_some(char *to, std::size_t size) {
  while (true) {
    if (std::exchange(waited_, true) || options_.can_be_interrupted())
      if (Status status = wait(POLLIN, "hear from"); !status.ok())
        return status;
    const ssize_t got = receive_spinning(to, size);
    if (got > 0)
      return static_cast<std::size_t>(got);
    if (got == 0 || is_gone(errno))
      return gone();
    if (errno != EINTR)
      return failed("hear from", errno);
  }
}

Status UnixSocket::fill() {
  Result<std::size_t> got = receive_some(buffer_.get(), buffer_size);
  if (!got.ok())
    return got.status();
  begin_ = 0;
  end_ = *got;
  return {};
}

Status UnixSocket::receive(char *to, std::size_t size) {
  while (true) {
    const std::size_t held = std::min(size, end_ - begin_);
    if (held) // memcpy of no bytes to a null pointer is undefined
      std::memcpy(to, buffer_.get() + begin_, held);
    begin_ += held;
    size -= held;
    if (!size)
      return {};
    to += held;
    if (size < buffer_size) {
      if (Status status = fill(); !status.ok())
        return status;
      continue;
    }
    Result<std::size_t> got = receive_some(to, size);
    if (!got.ok())
      return got.status();
    to += *got;
    size -= *got;
  }
}

Status UnixSocket::receive_line(std::string &line) {
  line.clear();
  while (true) {
    const std::string_view held(buffer_.get() + begin_, end_ - begin_);
    const std::size_t newline = held.find('\n');
    const std::size_t taken = newline == std::string_view::npos ? held.size() : newline + 1;
    line.append(held.substr(0, taken));
    begin_ += taken;
    if (newline != std::string_view::npos)
      return {};
    if (line.size() > protocol::max_line)
      return resource_exhausted("the server at " + path_ + " answered a line of more than " +
                                std::to_string(protocol::max_line) + " bytes");
    if (Status status = fill(); !status.ok())
      return status;
  }
}

Status UnixSocket::gone() const { return unavailable("the server at " + path_ + " went away without an answer"); }

Status UnixSocket::failed(const char *action, int error) const {
  if (error == EAGAIN || error == EWOULDBLOCK)
    return deadline_exceeded(could_not(action, path_) + " within " + seconds(options_.timeout));
  const bool is_absent = error == ENOENT || error == ECONNREFUSED;
  const std::string message = could_not(action, path_) + ": " + std::strerror(error);
  if (!is_absent)
    return unavailable(message);
  return unavailable(lacking(message + "; start one (policybridge serve --socket " + path_ + "), or mend the address"));
}

} // namespace policybridge

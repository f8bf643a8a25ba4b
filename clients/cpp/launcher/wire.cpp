#include "wire.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

namespace policybridge {

namespace {

constexpr std::size_t longest_line = 1 << 20;
constexpr double longest_wait = 1e9;

Error unavailable(const char *what, const std::string &path, const std::string &why) {
  return Error::policy(Unavailable, std::string("could not ") + what + " the server at " + path + ": " + why);
}

Error late(const char *what, const std::string &path, double seconds) {
  char limit[32];
  (void)snprintf(limit, sizeof limit, "%g", seconds);
  return Error::policy(DeadlineExceeded,
                       std::string("could not ") + what + " the server at " + path + " within " + limit + " s");
}

timespec duration(double seconds) {
  seconds = std::min(seconds, longest_wait);
  const double whole = std::floor(seconds);
  return {static_cast<time_t>(whole), static_cast<long>((seconds - whole) * 1e9)};
}

bool has_closed(int number) { return number == EPIPE || number == ECONNRESET; }

void advance(iovec *&pieces, std::size_t &count, std::size_t sent) {
  while (count && sent >= pieces->iov_len) {
    sent -= pieces->iov_len;
    ++pieces, --count;
  }
  if (count) {
    pieces->iov_base = static_cast<char *>(pieces->iov_base) + sent;
    pieces->iov_len -= sent;
  }
}

} // namespace

Result<Wire> Wire::connect(const std::string &path, Patience patience) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return unavailable("reach", path, "AF_UNIX path too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Only to connect: all other waits can be broken off.
  const timespec limit = duration(std::max(patience.seconds, 1e-6));
  const timeval kernel_limit = {limit.tv_sec, limit.tv_nsec / 1000};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kernel_limit, sizeof kernel_limit);
  while (::connect(socket.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0) {
    if (errno == EINTR)
      continue;
    return errno == EAGAIN ? late("reach", path, patience.seconds) : unavailable("reach", path, strerror(errno));
  }
  return Wire(path, patience, std::move(socket));
}

Failure Wire::wait(short events, const char *what) const {
  pollfd sources[] = {
      {socket_.get(), events, 0}, {patience_.signals->descriptor(), POLLIN, 0}, {patience_.compiler, POLLIN, 0}};
  const timespec limit = duration(patience_.seconds);
  int ready = 0;
  while ((ready = ppoll(sources, 3, &limit, nullptr)) < 0 && errno == EINTR) {
  }
  if (sources[0].revents)
    return {};
  if (ready == 0)
    return late(what, path_, patience_.seconds);
  if (const std::optional<int> number = patience_.signals->taken())
    return Error::signal(*number);
  return Error::compiler_ended();
}

Failure Wire::send(iovec *pieces, std::size_t count) {
  while (count) {
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      advance(pieces, count, static_cast<std::size_t>(sent));
    } else if (has_closed(errno)) {
      // What the server said before, perhaps why, is still there to be read.
      return {};
    } else if (errno == EAGAIN) {
      if (Failure failure = wait(POLLOUT, "send to"))
        return failure;
    } else if (errno != EINTR) {
      return unavailable("send to", path_, strerror(errno));
    }
  }
  return {};
}

Failure Wire::send(std::string_view bytes) {
  iovec piece = {const_cast<char *>(bytes.data()), bytes.size()};
  return send(&piece, 1);
}

Result<std::size_t> Wire::receive(char *buffer, std::size_t size) {
  std::size_t got = 0;
  while (got < size) {
    if (Failure failure = wait(POLLIN, "hear from"))
      return std::move(*failure);
    const ssize_t more = recv(socket_.get(), buffer + got, size - got, MSG_DONTWAIT);
    if (more == 0)
      break;
    if (more > 0)
      got += static_cast<std::size_t>(more);
    else if (errno != EINTR && errno != EAGAIN)
      return unavailable("hear from", path_, strerror(errno));
  }
  return got;
}

Result<std::string> Wire::receive_line() {
  // Looked at before it is taken: what follows the line belongs to the first reply.
  std::string line;
  std::vector<char> seen(1 << 12);
  while (line.size() <= longest_line) {
    if (Failure failure = wait(POLLIN, "hear from"))
      return std::move(*failure);
    const ssize_t here = recv(socket_.get(), seen.data(), seen.size(), MSG_PEEK | MSG_DONTWAIT);
    if (here < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (here < 0)
      return unavailable("hear from", path_, strerror(errno));
    if (here == 0)
      return gone();
    const std::string_view held(seen.data(), static_cast<std::size_t>(here));
    const std::size_t newline = held.find('\n');
    const std::size_t taken = newline == std::string_view::npos ? held.size() : newline + 1;
    line += held.substr(0, std::min(newline, held.size()));
    (void)!recv(socket_.get(), seen.data(), taken, MSG_DONTWAIT);
    if (newline != std::string_view::npos)
      return line;
  }
  return Error::policy(ResourceExhausted, "the server at " + path_ + " answered a line of more than " +
                                              std::to_string(longest_line) + " bytes");
}

Result<std::string> Wire::receive_rest() {
  std::string rest(longest_line, '\0');
  Result<std::size_t> got = receive(rest.data(), rest.size());
  if (!got)
    return std::move(got.error());
  rest.resize(*got);
  return rest;
}

Error Wire::gone() const {
  return Error::policy(Unavailable, "the server at " + path_ + " went away without an answer");
}

} // namespace policybridge

/// The cost of a socket alone: each message is answered by 9 bytes of 0, by one thread with epoll.
///
///   policybridge-socket-echo PATH SIZE   prints `ready socket:PATH tcp:127.0.0.1:PORT`; SIZE bytes are one message

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace {

constexpr int backlog = 256;

/// Gives −1 on an error.
int listen_at(const sockaddr *where, socklen_t size) {
  const int listener = ::socket(where->sa_family, SOCK_STREAM, 0);
  return ::bind(listener, where, size) == 0 && ::listen(listener, backlog) == 0 ? listener : -1;
}

int listen_unix(const char *path) {
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  std::strncpy(where.sun_path, path, sizeof where.sun_path - 1);
  return listen_at(reinterpret_cast<const sockaddr *>(&where), sizeof where);
}

int listen_tcp(unsigned &port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  const int listener = listen_at(reinterpret_cast<const sockaddr *>(&where), size);
  if (::getsockname(listener, reinterpret_cast<sockaddr *>(&where), &size) != 0)
    return -1;
  port = ntohs(where.sin_port);
  return listener;
}

void watch(int epoll, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

/// Answers each connection's messages; a message is `size` bytes, in pieces of any size.
class Echo {
public:
  explicit Echo(std::size_t size) : size_(size), buffer_(1 << 20) {}

  /// Whether the connection goes on.
  bool serve(int connection) {
    const ssize_t got = ::recv(connection, buffer_.data(), buffer_.size(), 0);
    if (got <= 0)
      return false;
    std::size_t &held = held_[connection];
    for (held += static_cast<std::size_t>(got); held >= size_; held -= size_)
      if (::send(connection, reply_.data(), reply_.size(), MSG_NOSIGNAL) < 0)
        return false;
    return true;
  }

  void forget(int connection) {
    held_.erase(connection);
    ::close(connection);
  }

private:
  std::size_t size_;
  std::vector<char> buffer_;
  std::map<int, std::size_t> held_;
  std::array<char, 9> reply_{};
};

} // namespace

int main(int count, char **words) {
  if (count != 3)
    return 2;
  unsigned port = 0;
  const int by_path = listen_unix(words[1]);
  const int by_port = listen_tcp(port);
  if (by_path < 0 || by_port < 0) {
    std::perror("policybridge-socket-echo");
    return 1;
  }
  const int epoll = ::epoll_create1(0);
  watch(epoll, by_path);
  watch(epoll, by_port);
  std::printf("ready socket:%s tcp:127.0.0.1:%u\n", words[1], port);
  std::fflush(stdout);
  Echo echo(std::strtoul(words[2], nullptr, 10));
  std::array<epoll_event, 64> events{};
  while (true) {
    const int ready = ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), -1);
    for (int index = 0; index < ready; ++index) {
      const int descriptor = events[static_cast<std::size_t>(index)].data.fd;
      if (descriptor == by_path || descriptor == by_port) {
        const int connection = ::accept(descriptor, nullptr, nullptr);
        const int on = 1;
        ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(epoll, connection);
      } else if (!echo.serve(descriptor)) {
        echo.forget(descriptor);
      }
    }
  }
}

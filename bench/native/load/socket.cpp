#include "askers.h"
#include "stream_socket.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace bench {

using policybridge::Result;
using policybridge::Status;
using policybridge::unavailable;

namespace {

Status failed(const std::string &what) { return unavailable(what + ": " + std::strerror(errno)); }

Result<StreamSocket> connect_to(StreamSocket made, int descriptor, const sockaddr *where, socklen_t size,
                                const std::string &address) {
  if (descriptor < 0 || ::connect(descriptor, where, size) != 0)
    return failed(address);
  return Result<StreamSocket>(std::move(made));
}

Result<StreamSocket> connect_unix(const std::string &path) {
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  if (path.size() >= sizeof where.sun_path)
    return policybridge::invalid_argument(path + " is too long for a Unix socket");
  std::memcpy(where.sun_path, path.c_str(), path.size() + 1);
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return connect_to(StreamSocket(descriptor), descriptor, reinterpret_cast<const sockaddr *>(&where), sizeof where,
                    path);
}

Result<StreamSocket> connect_tcp(const std::string &target) {
  const std::size_t colon = target.rfind(':');
  sockaddr_in where{};
  where.sin_family = AF_INET;
  if (colon == std::string::npos || inet_pton(AF_INET, target.substr(0, colon).c_str(), &where.sin_addr) != 1)
    return policybridge::invalid_argument(target + " is no ADDRESS:PORT");
  where.sin_port = htons(static_cast<std::uint16_t>(std::strtoul(target.c_str() + colon + 1, nullptr, 10)));
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return connect_to(StreamSocket(descriptor), descriptor, reinterpret_cast<const sockaddr *>(&where), sizeof where,
                    target);
}

class SocketAsker final : public Asker {
public:
  SocketAsker(StreamSocket socket, Messages messages) : socket_(std::move(socket)), messages_(std::move(messages)) {}

  Status ask(std::size_t number) override {
    if (Status status = socket_.send(messages_.messages[number % messages_.messages.size()]); !status.ok())
      return status;
    for (std::size_t got = 0; got < reply_.size();) {
      const Result<std::size_t> more = socket_.receive(reply_.data() + got, reply_.size() - got);
      if (!more)
        return more.status();
      got += *more;
    }
    return reply_[0] == 0 ? Status() : policybridge::internal_error("the first byte of the answer is not 0");
  }

private:
  StreamSocket socket_;
  Messages messages_;
  std::array<char, 9> reply_{};
};

} // namespace

StreamSocket::~StreamSocket() {
  if (descriptor_ >= 0)
    ::close(descriptor_);
}

Result<StreamSocket> StreamSocket::connect(const std::string &address) {
  if (address.rfind("socket:", 0) == 0)
    return connect_unix(address.substr(7));
  if (address.rfind("tcp:", 0) == 0)
    return connect_tcp(address.substr(4));
  return policybridge::invalid_argument(address + " is neither socket:PATH nor tcp:ADDRESS:PORT");
}

Status StreamSocket::send(std::string_view data) {
  while (!data.empty()) {
    const ssize_t sent = ::send(descriptor_, data.data(), data.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR)
      return failed("sending");
    data.remove_prefix(sent < 0 ? 0 : static_cast<std::size_t>(sent));
  }
  return {};
}

Result<std::size_t> StreamSocket::receive(char *buffer, std::size_t size) {
  ssize_t got = -1;
  do {
    got = ::recv(descriptor_, buffer, size, 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0)
    return failed("receiving");
  if (got == 0)
    return unavailable("the server closed the connection");
  return static_cast<std::size_t>(got);
}

Made make_socket(const Options &options, Messages messages) {
  Result<StreamSocket> socket = StreamSocket::connect(options.address);
  if (!socket)
    return socket.status();
  return Made(std::make_unique<SocketAsker>(*std::move(socket), std::move(messages)));
}

} // namespace bench

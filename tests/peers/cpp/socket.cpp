#include "load.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace bench {

using policybridge::internal_error;
using policybridge::Result;
using policybridge::Status;
using policybridge::unavailable;

namespace {

/// Gives the size in bytes of the answer at the start of `text`; 0 if more bytes are needed to tell.
using AnswerSize = Result<std::size_t> (*)(const std::string &text);

Result<std::size_t> socket_answer_size(const std::string &text) {
  if (!text.empty() && text[0] != 0)
    return internal_error("the first byte of the answer is not 0");
  return std::size_t{9};
}

Result<std::size_t> http_answer_size(const std::string &text) {
  const std::size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos)
    return std::size_t{0};
  if (text.compare(0, 13, "HTTP/1.1 200 ") != 0)
    return internal_error("the server answered " + text.substr(0, 200));
  for (std::size_t line = text.find("\r\n"); line < end; line = text.find("\r\n", line + 2)) {
    static constexpr char name[] = "content-length:";
    if (strncasecmp(text.c_str() + line + 2, name, sizeof name - 1) == 0)
      return end + 4 + std::strtoul(text.c_str() + line + 2 + sizeof name - 1, nullptr, 10);
  }
  return internal_error("the answer does not say its length");
}

Status failed(const std::string &what) { return unavailable(what + ": " + std::strerror(errno)); }

/// A client of a bare stream socket.
class SocketClient final : public Client {
public:
  SocketClient(Messages messages, AnswerSize answer_size) : messages_(std::move(messages)), answer_size_(answer_size) {}

  ~SocketClient() override {
    if (descriptor_ >= 0)
      ::close(descriptor_);
  }

  Status connect(const std::string &address) {
    if (address.rfind("socket:", 0) == 0)
      return connect_unix(address.substr(7));
    if (address.rfind("tcp:", 0) == 0)
      return connect_tcp(address.substr(4));
    return policybridge::invalid_argument(address + " is neither socket:PATH nor tcp:ADDRESS:PORT");
  }

  Status ask(std::size_t number) override {
    if (Status status = send(messages_.messages[number % messages_.messages.size()]); !status.ok())
      return status;
    std::size_t wanted = 0;
    for (answer_.clear(); wanted == 0 || answer_.size() < wanted;) {
      if (Status status = receive(); !status.ok())
        return status;
      const Result<std::size_t> size = answer_size_(answer_);
      if (!size)
        return size.status();
      wanted = *size;
    }
    return {};
  }

private:
  Status connect_unix(const std::string &path) {
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    if (path.size() >= sizeof where.sun_path)
      return policybridge::invalid_argument(path + " is too long for a Unix socket");
    std::memcpy(where.sun_path, path.c_str(), path.size() + 1);
    return connect_to(reinterpret_cast<const sockaddr *>(&where), sizeof where, path);
  }

  Status connect_tcp(const std::string &target) {
    const std::size_t colon = target.rfind(':');
    sockaddr_in where{};
    where.sin_family = AF_INET;
    if (colon == std::string::npos || inet_pton(AF_INET, target.substr(0, colon).c_str(), &where.sin_addr) != 1)
      return policybridge::invalid_argument(target + " is no ADDRESS:PORT");
    where.sin_port = htons(static_cast<std::uint16_t>(std::strtoul(target.c_str() + colon + 1, nullptr, 10)));
    Status status = connect_to(reinterpret_cast<const sockaddr *>(&where), sizeof where, target);
    const int on = 1;
    setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return status;
  }

  Status connect_to(const sockaddr *where, socklen_t size, const std::string &address) {
    descriptor_ = ::socket(where->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return descriptor_ >= 0 && ::connect(descriptor_, where, size) == 0 ? Status() : failed(address);
  }

  Status send(std::string_view data) {
    while (!data.empty()) {
      const ssize_t sent = ::send(descriptor_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR)
        return failed("sending");
      data.remove_prefix(sent < 0 ? 0 : static_cast<std::size_t>(sent));
    }
    return {};
  }

  /// Wait for bytes and append them to the answer.
  Status receive() {
    ssize_t got = -1;
    do {
      got = ::recv(descriptor_, buffer_.data(), buffer_.size(), 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
      return failed("receiving");
    if (got == 0)
      return unavailable("the server closed the connection");
    answer_.append(buffer_.data(), static_cast<std::size_t>(got));
    return {};
  }

  Messages messages_;
  AnswerSize answer_size_;
  int descriptor_ = -1;
  std::string answer_;
  std::array<char, 65536> buffer_{};
};

Made make(const Options &options, Messages messages, AnswerSize answer_size) {
  auto client = std::make_unique<SocketClient>(std::move(messages), answer_size);
  if (Status status = client->connect(options.address); !status.ok())
    return status;
  return Made(std::move(client));
}

} // namespace

Made make_socket(const Options &options, Messages messages) {
  return make(options, std::move(messages), socket_answer_size);
}

Made make_http(const Options &options, Messages messages) {
  return make(options, std::move(messages), http_answer_size);
}

} // namespace bench

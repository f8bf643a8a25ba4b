#include "askers.h"
#include "stream_socket.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <strings.h>

namespace bench {

using policybridge::internal_error;
using policybridge::Result;
using policybridge::Status;

namespace {

/// Bytes of the answer in `text` from its status line to the end of its body; 0 while its header is not all there.
Result<std::size_t> answer_size(const std::string &text) {
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

class HttpAsker final : public Asker {
public:
  HttpAsker(StreamSocket socket, Messages messages) : socket_(std::move(socket)), messages_(std::move(messages)) {}

  Status ask(std::size_t number) override {
    if (Status status = socket_.send(messages_.messages[number % messages_.messages.size()]); !status.ok())
      return status;
    std::size_t wanted = 0;
    for (answer_.clear(); wanted == 0 || answer_.size() < wanted;) {
      const Result<std::size_t> got = socket_.receive(buffer_.data(), buffer_.size());
      if (!got)
        return got.status();
      answer_.append(buffer_.data(), *got);
      const Result<std::size_t> size = answer_size(answer_);
      if (!size)
        return size.status();
      wanted = *size;
    }
    return {};
  }

private:
  StreamSocket socket_;
  Messages messages_;
  std::string answer_;
  std::array<char, 65536> buffer_{};
};

} // namespace

Made make_http(const Options &options, Messages messages) {
  Result<StreamSocket> socket = StreamSocket::connect(options.address);
  if (!socket)
    return socket.status();
  return Made(std::make_unique<HttpAsker>(*std::move(socket), std::move(messages)));
}

} // namespace bench

#ifndef POLICYBRIDGE_BENCH_STREAM_SOCKET_H
#define POLICYBRIDGE_BENCH_STREAM_SOCKET_H

#include "policybridge/status.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace bench {

/// A connected stream socket, closed with its owner.
class StreamSocket {
public:
  explicit StreamSocket(int descriptor) noexcept : descriptor_(descriptor) {}
  StreamSocket(StreamSocket &&other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  StreamSocket(const StreamSocket &) = delete;
  StreamSocket &operator=(const StreamSocket &) = delete;
  ~StreamSocket();

  /// To `socket:PATH` or `tcp:IPv4:PORT`. Unavailable: nobody listens there.
  static policybridge::Result<StreamSocket> connect(const std::string &address);

  /// Send all of it.
  policybridge::Status send(std::string_view data);
  /// Receive what has come, waiting for something; gives the number of bytes. Unavailable: the end of the stream.
  policybridge::Result<std::size_t> receive(char *buffer, std::size_t size);

private:
  int descriptor_;
};

} // namespace bench

#endif

#pragma once

#include "error.h"
#include "files.h"
#include "signals.h"

#include <string>
#include <string_view>
#include <sys/uio.h>

namespace policybridge {

/// What a wait for the server ends with, beside the server.
struct Patience {
  double seconds;
  Signals *signals;
  /// The compiler that asks; -1 where nobody does.
  int compiler = -1;
};

/// A connection to the server's Unix socket. Errors are DeadlineExceeded where what was waited for did not come in
/// time, Unavailable where the server cannot be reached or went away; and a Signal or CompilerEnded, see `Patience`.
class Wire {
public:
  static Result<Wire> connect(const std::string &path, Patience patience);

  /// Sends all of it; that the server has closed comes out when its answer is read. Changes `pieces`.
  Failure send(iovec *pieces, std::size_t count);
  Failure send(std::string_view bytes);

  /// Fills the buffer. Gives how much came, less where the server closed before.
  Result<std::size_t> receive(char *buffer, std::size_t size);

  /// Takes a line, without its newline.
  Result<std::string> receive_line();

  /// Takes all until the server closes, at most a line's limit.
  Result<std::string> receive_rest();

  /// The error for a server that closed without an answer.
  Error gone() const;

private:
  Wire(std::string path, Patience patience, Descriptor socket)
      : path_(std::move(path)), patience_(patience), socket_(std::move(socket)) {}

  Failure wait(short events, const char *what) const;

  std::string path_;
  Patience patience_;
  Descriptor socket_;
};

} // namespace policybridge

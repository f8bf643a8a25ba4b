#pragma once

#include "error.h"

#include <optional>
#include <string_view>
#include <vector>

namespace policybridge {

/// What LLVM has written as a whole. The views are valid until the reader takes more.
struct Event {
  enum class Kind { Header, Context, Observation };

  Kind kind;
  /// All of it, as LLVM wrote it, the last newline included.
  std::string_view bytes;
  /// An observation's tensors.
  std::string_view payload;
};

/// Cuts LLVM's interactive stream (llvm/lib/Analysis/InteractiveModelRunner.cpp), which arrives in pieces of any size,
/// into events. Its memory is one buffer, which grows only for an observation that is larger than all before.
class StreamReader {
public:
  StreamReader();

  /// Where the next piece goes, and how much of it may come.
  char *space(std::size_t &size);

  /// Says how much came.
  void taken(std::size_t size) { end_ += size; }

  /// The next event that is complete, if there is one. `payload` is an observation's size, once a header said it.
  /// InvalidArgument where the stream is not LLVM's; ResourceExhausted for a line of more than 1 MiB.
  Result<std::optional<Event>> next(std::optional<std::size_t> payload);

private:
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t needed_ = 0;
};

} // namespace policybridge

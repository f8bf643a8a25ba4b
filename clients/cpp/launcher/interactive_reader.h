#pragma once

#include "policybridge/status.h"

#include <optional>
#include <string_view>
#include <vector>

namespace policybridge {

/// One complete message of LLVM's. The views are valid until the reader is given more bytes.
struct Message {
  enum class Kind { Header, Context, Observation };

  Kind kind;
  /// The message's line, with its newline.
  std::string_view line;
  /// The packed tensors of an observation.
  std::string_view payload;
};

/// Cuts the bytes that LLVM's InteractiveModelRunner writes (llvm/lib/Analysis/InteractiveModelRunner.cpp) into
/// messages. The bytes may arrive in pieces of any size. The one buffer grows only for an observation larger than all
/// before.
class InteractiveReader {
public:
  InteractiveReader();

  /// Where to put the next bytes, and how many at most.
  char *space(std::size_t &size);

  /// Say how many bytes were put there.
  void add(std::size_t size) { end_ += size; }

  /// Give the next complete message, if there is one. `payload_size` is an observation's size in bytes, once a header
  /// has announced it. InvalidArgument: LLVM would not write this; ResourceExhausted: a line of more than 1 MiB.
  Result<std::optional<Message>> next(std::optional<std::size_t> payload_size);

private:
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t needed_ = 0;
};

} // namespace policybridge

#pragma once

#include "error.h"
#include "files.h"

#include <string>
#include <string_view>

namespace policybridge {

/// `base.in` and `base.out`, the named pipes over which one compiler asks, in a folder of their own that is gone with
/// its owner.
///
/// Both are opened for reading and writing before the compiler starts. So the compiler's open never blocks, ours does
/// not either when it never opens them, and it never sees an end of its replies, at which LLVM would spin for ever.
class Channel {
public:
  /// A folder that nobody else has, not made yet: so a `Watchdog` can know it before it is there.
  static std::string new_folder();

  /// A System error where it cannot be made.
  static Result<Channel> make(const std::string &folder);

  Channel(Channel &&other) noexcept;
  Channel &operator=(Channel &&) = delete;
  ~Channel();

  const std::string &folder() const { return folder_; }
  std::string base() const { return folder_ + "/llvm"; }

  /// Becomes readable when LLVM has written.
  int observations() const { return observations_.get(); }

  /// Answers one observation: the advice's bytes and nothing else.
  void reply(std::string_view advice) const;

private:
  explicit Channel(std::string folder) : folder_(std::move(folder)) {}
  Failure open_pipes();

  std::string folder_;
  Descriptor replies_;
  Descriptor observations_;
};

} // namespace policybridge

#pragma once

#include "descriptor.h"
#include "policybridge/status.h"

#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

/// The two named pipes `base.in` and `base.out`, over which one compiler requests advice, in a folder of their own that
/// is removed with its owner.
///
/// Both pipes are opened for reading and writing before the compiler starts. So the compiler's open never blocks, and
/// the launcher does not block where the compiler never opens them. LLVM never sees the end of its replies either,
/// because that would make it loop for ever.
class Channel {
public:
  /// Unique paths for the folder, one in each folder for temporary files. None exists yet: a `Watchdog` has to know the
  /// path before `make`.
  static std::vector<std::string> new_folders();

  /// Make the folder and the pipes.
  static Result<Channel> make(const std::string &folder);

  Channel(Channel &&other) noexcept;
  Channel &operator=(Channel &&) = delete;
  ~Channel();

  const std::string &folder() const { return folder_; }
  std::string base() const { return folder_ + "/llvm"; }

  /// The descriptor that becomes readable when LLVM has written.
  int observations() const { return observations_.get(); }

  /// Answers one observation with the advice's bytes.
  void reply(std::string_view advice) const;

private:
  explicit Channel(std::string folder) : folder_(std::move(folder)) {}
  Status open_pipes();

  std::string folder_;
  Descriptor replies_;
  Descriptor observations_;
};

} // namespace policybridge

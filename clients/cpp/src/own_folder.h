#ifndef POLICYBRIDGE_SRC_OWN_FOLDER_H
#define POLICYBRIDGE_SRC_OWN_FOLDER_H

#include "descriptor.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

/// A folder of PolicyBridge in the user's cache folder.
class OwnFolder {
public:
  /// No folder.
  OwnFolder() = default;

  /// The folder of a name, made if it is missing. Closed: it is not this user's alone.
  static OwnFolder open(const char *name);

  bool is_open() const noexcept { return folder_.is_open(); }

  struct File {
    std::int64_t changed; ///< seconds since 1970
    std::uint64_t bytes;
    std::string name;

    bool operator<(const File &other) const { return changed != other.changed ? changed < other.changed : name < other.name; }
  };

  /// Its files, the oldest first; of a flood the first entries that the system gives.
  std::vector<File> files() const;

  /// Open a file to read it; closed where there is none. Its bytes, where it is regular and has at most `most`.
  Descriptor file(const std::string &name) const;
  static std::optional<std::string> content(const Descriptor &file, std::uint64_t most);

  /// Write a file of this user's alone beside, and rename it: no other process reads half of it.
  bool write(const std::string &name, std::string_view bytes) const;
  void remove(const std::string &name) const noexcept;

private:
  explicit OwnFolder(Descriptor folder) : folder_(std::move(folder)) {}

  Descriptor folder_;
};

} // namespace policybridge

#endif

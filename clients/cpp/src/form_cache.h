#ifndef POLICYBRIDGE_SRC_FORM_CACHE_H
#define POLICYBRIDGE_SRC_FORM_CACHE_H

#include <optional>
#include <string>
#include <string_view>

namespace policybridge {

/// The forms that this user's compilers have been sent, by digest: files in `policybridge/forms` of the user's cache
/// folder. A file is used only if it has the SHA-256 of its name. Where there is no folder that is this user's alone,
/// nothing is kept.
class FormCache {
public:
  /// Largest sum of the files, in bytes; the oldest go first.
  static constexpr std::uint64_t limit = std::uint64_t{256} << 20;

  /// Give the form of a digest, `sha256:` and 64 hexadecimal digits.
  std::optional<std::string> find(const std::string &digest) const;

  /// Keep a form. Where it cannot be written, the next compilation asks for it again.
  void keep(const std::string &digest, std::string_view form) const;
};

/// Whether `form` has the digest.
bool is_form_of(const std::string &digest, std::string_view form);

} // namespace policybridge

#endif

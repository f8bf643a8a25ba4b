#include "form_cache.h"

#include "form_program.h"
#include "own_folder.h"
#include "sha256.h"

#include <string>
#include <vector>

namespace policybridge {

namespace {

constexpr std::string_view form_digest_prefix = "sha256:";
constexpr std::size_t hex_digits = 64;

/// The hexadecimal digits of a digest; empty for another text, which would be a path of the peer's choice.
std::string name_of(const std::string &digest) {
  if (digest.compare(0, form_digest_prefix.size(), form_digest_prefix) != 0)
    return "";
  std::string name = digest.substr(form_digest_prefix.size());
  const bool is_name = name.size() == hex_digits && name.find_first_not_of("0123456789abcdef") == std::string::npos;
  return is_name ? name : "";
}

} // namespace

bool is_form_of(const std::string &digest, std::string_view form) {
  return digest == std::string(form_digest_prefix) + sha256(form);
}

std::optional<std::string> FormCache::find(const std::string &digest) const {
  const std::string name = name_of(digest);
  if (name.empty())
    return std::nullopt;
  const OwnFolder folder = OwnFolder::open("forms");
  if (!folder.is_open())
    return std::nullopt;
  std::optional<std::string> bytes = OwnFolder::content(folder.file(name), forms::most_form_bytes);
  return bytes && is_form_of(digest, *bytes) ? std::move(bytes) : std::nullopt;
}

void FormCache::keep(const std::string &digest, std::string_view form) const {
  const std::string name = name_of(digest);
  if (name.empty())
    return;
  const OwnFolder folder = OwnFolder::open("forms");
  if (!folder.is_open() || !folder.write(name, form))
    return;
  const std::vector<OwnFolder::File> files = folder.files();
  std::uint64_t total = 0;
  for (const OwnFolder::File &file : files)
    total += file.bytes;
  for (const OwnFolder::File &file : files) {
    if (total <= limit)
      return;
    folder.remove(file.name);
    total -= file.bytes;
  }
}

} // namespace policybridge

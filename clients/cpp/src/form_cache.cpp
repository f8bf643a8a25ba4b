#include "form_cache.h"

#include "descriptor.h"
#include "form_program.h"
#include "sha256.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
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

std::string cache_home() {
  if (const char *folder = std::getenv("XDG_CACHE_HOME"); folder && *folder == '/')
    return folder;
  const char *home = std::getenv("HOME");
  return home && *home == '/' ? std::string(home) + "/.cache" : "";
}

/// The folder, made if it is missing, if it is this user's alone.
Descriptor open_form_folder() {
  std::string path = cache_home();
  if (path.empty())
    return Descriptor();
  for (const char *part : {"", "/policybridge", "/forms"})
    (void)mkdir((path += part).c_str(), 0700);
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about = {};
  const bool is_own = folder.is_open() && fstat(folder.get(), &about) == 0 && about.st_uid == geteuid();
  return is_own && !(about.st_mode & (S_IWGRP | S_IWOTH)) ? std::move(folder) : Descriptor();
}

std::optional<std::string> read_form(const Descriptor &file) {
  struct stat about = {};
  if (fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
      static_cast<std::uint64_t>(about.st_size) > forms::most_form_bytes)
    return std::nullopt;
  std::string bytes(static_cast<std::size_t>(about.st_size), '\0');
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t got = read(file.get(), bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return std::nullopt;
    at += static_cast<std::size_t>(got);
  }
  return bytes;
}

bool write_form(const Descriptor &file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// Remove the oldest files until the rest fit the limit.
void remove_oldest(const Descriptor &folder) {
  const int copy = openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR *)> listing(copy < 0 ? nullptr : fdopendir(copy), closedir);
  std::vector<std::tuple<std::int64_t, std::uint64_t, std::string>> files;
  std::uint64_t total = 0;
  while (const dirent *entry = listing ? readdir(listing.get()) : nullptr) {
    struct stat about = {};
    if (fstatat(folder.get(), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(about.st_mode))
      continue;
    files.emplace_back(about.st_mtim.tv_sec, static_cast<std::uint64_t>(about.st_size), entry->d_name);
    total += static_cast<std::uint64_t>(about.st_size);
  }
  std::sort(files.begin(), files.end());
  for (const auto &[time, size, name] : files) {
    if (total <= FormCache::limit)
      return;
    (void)unlinkat(folder.get(), name.c_str(), 0);
    total -= size;
  }
}

} // namespace

bool is_form_of(const std::string &digest, std::string_view form) {
  return digest == std::string(form_digest_prefix) + sha256(form);
}

std::optional<std::string> FormCache::find(const std::string &digest) const {
  const std::string name = name_of(digest);
  const Descriptor folder = name.empty() ? Descriptor() : open_form_folder();
  if (!folder.is_open())
    return std::nullopt;
  const Descriptor file(openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  std::optional<std::string> bytes = file.is_open() ? read_form(file) : std::nullopt;
  return bytes && is_form_of(digest, *bytes) ? std::move(bytes) : std::nullopt;
}

void FormCache::keep(const std::string &digest, std::string_view form) const {
  const std::string name = name_of(digest);
  const Descriptor folder = name.empty() ? Descriptor() : open_form_folder();
  if (!folder.is_open())
    return;
  // Written beside and renamed: another compiler must not read half of it.
  const std::string beside = name + "." + std::to_string(getpid());
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  const Descriptor file(openat(folder.get(), beside.c_str(), flags, 0600));
  if (!file.is_open())
    return;
  if (!write_form(file, form) || renameat(folder.get(), beside.c_str(), folder.get(), name.c_str()) != 0) {
    (void)unlinkat(folder.get(), beside.c_str(), 0);
    return;
  }
  remove_oldest(folder);
}

} // namespace policybridge

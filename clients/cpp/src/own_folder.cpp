#include "own_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace policybridge {

namespace {

constexpr std::size_t most_entries = 4096;

std::string cache_home() {
  if (const char *folder = std::getenv("XDG_CACHE_HOME"); folder && *folder == '/')
    return folder;
  const char *home = std::getenv("HOME");
  return home && *home == '/' ? std::string(home) + "/.cache" : "";
}

bool write_all(const Descriptor &file, std::string_view bytes) {
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

} // namespace

OwnFolder OwnFolder::open(const char *name) {
  std::string path = cache_home();
  if (path.empty())
    return OwnFolder();
  (void)mkdir(path.c_str(), 0700);
  (void)mkdir((path += "/policybridge").c_str(), 0700);
  (void)mkdir((path += std::string("/") + name).c_str(), 0700);
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about = {};
  const bool is_own = folder.is_open() && fstat(folder.get(), &about) == 0 && about.st_uid == geteuid();
  return OwnFolder(is_own && !(about.st_mode & (S_IWGRP | S_IWOTH)) ? std::move(folder) : Descriptor());
}

std::vector<OwnFolder::File> OwnFolder::files() const {
  std::vector<File> files;
  const int copy = openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR *)> listing(copy < 0 ? nullptr : fdopendir(copy), closedir);
  std::size_t seen = 0;
  while (const dirent *entry = listing && seen++ < most_entries ? readdir(listing.get()) : nullptr) {
    struct stat about = {};
    if (fstatat(folder_.get(), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(about.st_mode))
      files.push_back({about.st_mtim.tv_sec, static_cast<std::uint64_t>(about.st_size), entry->d_name});
  }
  std::sort(files.begin(), files.end());
  return files;
}

Descriptor OwnFolder::file(const std::string &name) const {
  return Descriptor(openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
}

std::optional<std::string> OwnFolder::content(const Descriptor &file, std::uint64_t most) {
  struct stat about = {};
  if (!file.is_open() || fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
      static_cast<std::uint64_t>(about.st_size) > most)
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

bool OwnFolder::write(const std::string &name, std::string_view bytes) const {
  const std::string beside = "." + name + "." + std::to_string(getpid());
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  const Descriptor file(openat(folder_.get(), beside.c_str(), flags, 0600));
  if (!file.is_open())
    return false;
  if (write_all(file, bytes) && renameat(folder_.get(), beside.c_str(), folder_.get(), name.c_str()) == 0)
    return true;
  remove(beside);
  return false;
}

void OwnFolder::remove(const std::string &name) const noexcept { (void)unlinkat(folder_.get(), name.c_str(), 0); }

} // namespace policybridge

#include "found_store.h"

#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace policybridge {
namespace {

constexpr const char *store_name = "/policybridge.decisions";
constexpr const char *roots[] = {"/.git", "/.hg", "/.jj", "/.svn"};
constexpr int most_without_root = 8;

/// The folder of a source with all links resolved; "" for the root of the file system.
std::optional<std::string> folder_of(const std::string &source) {
  const std::size_t slash = source.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : source.substr(0, slash + 1);
  const std::unique_ptr<char, void (*)(void *)> real(realpath(folder.c_str(), nullptr), &free);
  if (!real)
    return std::nullopt;
  return std::string_view(real.get()) == "/" ? "" : real.get();
}

bool exists(const std::string &path) {
  struct stat about = {};
  return !stat(path.c_str(), &about);
}

bool is_root(const std::string &folder) {
  for (const char *root : roots)
    if (exists(folder + root))
      return true;
  return false;
}

/// Why another user could have written a file or folder; empty if none could, or only the system's administrator.
std::string doubt_about(const std::string &path, const std::string &called) {
  struct stat about = {};
  if (stat(path.c_str(), &about))
    return called + " cannot be looked at";
  if (about.st_uid != geteuid() && about.st_uid != 0)
    return called + " belongs to another user; name it by --decisions to use it";
  // Where every user has a group of his own, files are writable by the group.
  const bool by_group = (about.st_mode & S_IWGRP) && about.st_gid != getegid() && about.st_gid != 0;
  const bool by_others = by_group || (about.st_mode & S_IWOTH);
  return by_others ? called + " can be written by other users; name it by --decisions to use it" : "";
}

FoundStore look_at(const std::string &folder) {
  FoundStore found{folder + store_name, doubt_about(folder + store_name, "it")};
  if (found.refused.empty())
    found.refused = doubt_about(folder.empty() ? "/" : folder, "its folder");
  return found;
}

} // namespace

FoundStore find_store(const std::string &source) {
  std::optional<std::string> folder = folder_of(source);
  if (!folder)
    return {};
  std::optional<std::string> found;
  for (int height = 0;; ++height) {
    if (!found && exists(*folder + store_name))
      found = folder;
    if (is_root(*folder) || (found && height <= most_without_root))
      return found ? look_at(*found) : FoundStore();
    if (folder->empty())
      return {};
    folder->resize(folder->rfind('/'));
  }
}

} // namespace policybridge

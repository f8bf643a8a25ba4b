#include "compiler_cache.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace policybridge {
namespace {

/// A compiler is started by its driver, and that by a wrapper at most.
constexpr int most_parents = 4;

std::string program_of(pid_t process) {
  char path[PATH_MAX];
  const ssize_t size = readlink(("/proc/" + std::to_string(process) + "/exe").c_str(), path, sizeof path);
  const std::string program(path, size > 0 ? static_cast<std::size_t>(size) : 0);
  return program.substr(program.rfind('/') + 1);
}

/// 0 where there is none, or it is not known.
pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // The name in parentheses may hold anything; behind it come the state and the parent.
  const std::size_t name_end = text.rfind(") ");
  const std::size_t state_end = name_end == std::string::npos ? name_end : text.find(' ', name_end + 2);
  return state_end == std::string::npos ? 0 : static_cast<pid_t>(std::strtol(text.c_str() + state_end, nullptr, 10));
}

bool is_cache(std::string_view program) {
  return program == "ccache" || program == "sccache" || program == "buildcache";
}

/// Whether a program of this name is a linker: ld, lld, ld.lld-22, ld64.lld.
bool is_linker(std::string_view program) {
  return program.substr(0, 2) == "ld" || program.find("lld") != std::string_view::npos;
}

} // namespace

std::string compiler_cache() {
  // A cache may start the compiler that starts a linker, and keeps nothing that this makes.
  if (is_linker(program_of(getpid())))
    return "";
  pid_t process = getppid();
  for (int n = 0; n < most_parents && process > 1; ++n, process = parent_of(process))
    if (const std::string program = program_of(process); is_cache(program))
      return program;
  return "";
}

const char *extra_files_of(std::string_view cache) {
  return extra_files_variables[cache == "ccache" ? 0 : cache == "buildcache" ? 1 : 2];
}

bool is_in_key(std::string_view cache, const std::string &file) {
  const char *value = std::getenv(extra_files_of(cache));
  struct stat wanted = {}, other = {};
  if (!value || stat(file.c_str(), &wanted))
    return false;
  for (std::string_view rest = value; !rest.empty();) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::string name(rest.substr(0, end));
    if (!stat(name.c_str(), &other) && wanted.st_dev == other.st_dev && wanted.st_ino == other.st_ino)
      return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

} // namespace policybridge

#include "version.h"

#include "files.h"
#include "process.h"
#include "sha256.h"

#include <algorithm>
#include <charconv>
#include <glob.h>
#include <sys/stat.h>

namespace policybridge {

namespace {

constexpr int timeout_milliseconds = 30000;

int version_in(const std::string &said) {
  constexpr std::string_view word = " version ";
  for (std::size_t place = said.find(word); place != std::string::npos; place = said.find(word, place + 1)) {
    const std::string_view before = std::string_view(said).substr(0, place);
    const auto ends = [&before](std::string_view name) {
      return before.size() >= name.size() && before.substr(before.size() - name.size()) == name;
    };
    int version = 0;
    if ((ends("clang") || ends("LLVM")) &&
        std::from_chars(said.data() + place + word.size(), said.data() + said.size(), version).ec == std::errc())
      return version;
  }
  return 0;
}

Result<int> ask(const Words &start, Signals &signals) {
  Words command = start;
  command.emplace_back("--version");
  Result<std::string> said = output_of(command, signals, timeout_milliseconds);
  if (said)
    return version_in(*said);
  // What cannot be started says so when it is started to compile.
  return said.error().kind == Error::Kind::Signal ? Result<int>(std::move(said.error())) : Result<int>(0);
}

void add_matches(const std::string &pattern, Words &files) {
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (std::size_t n = 0; n < found.gl_pathc; ++n)
      if (is_file(found.gl_pathv[n]))
        files.push_back(real_path(found.gl_pathv[n]));
  globfree(&found);
}

// The zig that Python would find, where it can find but one.
std::string python_zig(const std::string &python) {
  const std::string prefix = folder_of(folder_of(find_program(python)));
  Words files;
  add_matches("ziglang/zig", files);
  const std::string path = variable("PYTHONPATH") + ":";
  for (std::size_t start = 0, end = 0; (end = path.find(':', start)) != std::string::npos; start = end + 1)
    add_matches(path.substr(start, end - start) + "/ziglang/zig", files);
  for (const char *packages : {"/lib/python3*/site-packages", "/lib/python3*/dist-packages"})
    for (const std::string &root : {prefix, prefix == "/usr" ? std::string("/usr/local") : prefix})
      add_matches(root + packages + "/ziglang/zig", files);
  add_matches(variable("HOME") + "/.local/lib/python3*/site-packages/ziglang/zig", files);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files.size() == 1 ? files.front() : "";
}

std::string compiler_file(const Words &start) {
  if (is_python_zig(start))
    return python_zig(start[start.size() - 4]);
  const bool driver = start.size() > 1 && (start.back() == "cc" || start.back() == "c++");
  const std::string file = real_path(find_program(driver ? start[start.size() - 2] : start.back()));
  // A link to a wrapper (ccache has a folder of them) says nothing of the compiler behind it.
  return is_compiler(file_name(file)) ? file : "";
}

std::string identity(const Words &start) {
  const std::string file = compiler_file(start);
  struct stat found{};
  if (file.empty() || stat(file.c_str(), &found) != 0)
    return "";
  const long long changed = found.st_mtim.tv_sec * 1000000000LL + found.st_mtim.tv_nsec;
  return file + " " + std::to_string(found.st_size) + " " + std::to_string(changed);
}

std::string cache_folder() {
  const std::string caches = variable("XDG_CACHE_HOME"), home = variable("HOME");
  if (caches.empty() && home.empty())
    return "";
  return (caches.empty() ? home + "/.cache" : caches) + "/policybridge/llvm-versions";
}

} // namespace

Result<int> llvm_version(const Words &start, Signals &signals) {
  const std::string known = identity(start), folder = cache_folder();
  if (known.empty() || folder.empty())
    return ask(start, signals);
  const std::string kept = folder + "/" + sha256(known).substr(0, 32);
  int version = 0;
  if (Result<std::string> text = read_file(kept))
    if (std::from_chars(text->data(), text->data() + text->size(), version).ec == std::errc())
      return version;
  Result<int> said = ask(start, signals);
  if (said && *said) {
    // A home that cannot be written costs the next compile its 10 ms again, and nothing else.
    make_folders(folder);
    (void)write_file(kept, std::to_string(*said));
  }
  return said;
}

} // namespace policybridge

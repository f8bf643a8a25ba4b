#include "files.h"

#include "words.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

namespace policybridge {

namespace {

constexpr std::size_t piece = 1 << 16;
constexpr int open_folders = 16;

/// How the names of files and folders of trials begin.
constexpr const char *trials[] = {"conftest", "conftstm", "cmTC_", "meson-private", "conf_check_", "ztest", "gcctest"};

bool is_program(const std::string &path) { return is_file(path) && access(path.c_str(), X_OK) == 0; }

int remove_one(const char *path, const struct stat *, int, struct FTW *) {
  (void)remove(path);
  return 0;
}

bool write_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

} // namespace

Status system_error(int number, const std::string &path) {
  return {number == ENOENT ? StatusCode::NotFound : StatusCode::Internal,
          "[Errno " + std::to_string(number) + "] " + strerror(number) + ": '" + path + "'"};
}

std::string file_name(std::string_view path) {
  while (path.size() > 1 && path.back() == '/')
    path.remove_suffix(1);
  return std::string(path.substr(path.rfind('/') + 1));
}

bool is_trial(const std::vector<std::string> &command) {
  return std::any_of(command.begin(), command.end(), [](const std::string &word) {
    return word == "/dev/null" ||
           (!starts_with(word, "-") && std::any_of(std::begin(trials), std::end(trials), [&](const std::string &name) {
             return ("/" + word).find("/" + name) != std::string::npos;
           }));
  });
}

std::string folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos)
    return ".";
  return std::string(path.substr(0, slash ? slash : 1));
}

std::string working_folder() {
  char folder[PATH_MAX];
  return getcwd(folder, sizeof folder) ? folder : ".";
}

std::string absolute(const std::string &path) {
  return path.empty() || path.front() == '/' ? path : working_folder() + "/" + path;
}

std::string find_program(const std::string &word) {
  if (word.empty() || word.find('/') != std::string::npos)
    return is_program(word) ? word : "";
  const char *set = getenv("PATH");
  for (const std::string &part : split_at_colons(set ? set : "/bin:/usr/bin"))
    if (const std::string program = (part.empty() ? "." : part) + "/" + word; is_program(program))
      return program;
  return "";
}

std::string real_path(const std::string &path) {
  char real[PATH_MAX];
  return realpath(path.c_str(), real) ? real : "";
}

bool is_file(const std::string &path) {
  struct stat about{};
  return stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode);
}

std::string identity_of(const std::string &path) {
  struct stat about{};
  if (path.empty() || stat(path.c_str(), &about) != 0)
    return "";
  const long long changed = about.st_mtim.tv_sec * 1000000000LL + about.st_mtim.tv_nsec;
  return path + " " + std::to_string(about.st_size) + " " + std::to_string(changed);
}

Result<std::string> read_file(const std::string &path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open())
    return system_error(errno, path);
  std::string content;
  for (;;) {
    const std::size_t held = content.size();
    content.resize(held + piece);
    const ssize_t got = read(file.get(), &content[held], piece);
    content.resize(held + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0)
      return content;
    if (got < 0 && errno != EINTR)
      return system_error(errno, path);
  }
}

namespace {

/// Whether the path has something else than a file, as a device (/dev/stderr leads to one), a pipe or a link: what is
/// written goes through it, and no file may take its place.
bool is_written_through(const std::string &path) {
  struct stat about;
  return lstat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode);
}

Status write_through(const std::string &path, std::string_view content) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  return file.is_open() && write_all(file.get(), content) ? Status() : system_error(errno, path);
}

} // namespace

Status write_file(const std::string &path, std::string_view content) {
  if (is_written_through(path))
    return write_through(path, content);
  const std::string partial = folder_of(path) + "/." + file_name(path) + "." + std::to_string(gettid());
  const Descriptor file(open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.is_open())
    return system_error(errno, partial);
  if (write_all(file.get(), content) && rename(partial.c_str(), path.c_str()) == 0)
    return {};
  const int number = errno;
  (void)unlink(partial.c_str());
  return system_error(number, path);
}

void make_folders(const std::string &path) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
    (void)mkdir(path.substr(0, slash).c_str(), 0777);
  (void)mkdir(path.c_str(), 0777);
}

std::vector<std::string> matches_of(const std::string &pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

void remove_tree(const std::string &path) { nftw(path.c_str(), remove_one, open_folders, FTW_DEPTH | FTW_PHYS); }

std::string variable(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

} // namespace policybridge

#include "outage.h"

#include "deadline.h"
#include "descriptor.h"
#include "sha256.h"

#include <climits>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace policybridge {

namespace {

constexpr std::size_t digits = 32;

constexpr std::string_view scheme = "socket:";

/// The address without `socket:`, as messages name it.
std::string without_scheme(const std::string &address) {
  return address.compare(0, scheme.size(), scheme) == 0 ? address.substr(scheme.size()) : address;
}

/// The same address for the same server, in whatever folder a compiler runs. As the Python client's.
std::string absolute(const std::string &address) {
  const std::string path = without_scheme(address);
  const bool other = path.find(':') != std::string::npos || path.find('/') == std::string::npos;
  if (path.size() == address.size() && other)
    return address;
  char folder[PATH_MAX];
  const bool is_absolute = path.compare(0, 1, "/") == 0 || !getcwd(folder, sizeof folder);
  return std::string(scheme) + (is_absolute ? path : std::string(folder) + "/" + path);
}

std::string text_of(const PolicyReference &policy) {
  if (policy.version)
    return policy.name + "@" + std::to_string(*policy.version);
  return policy.alias ? policy.name + "@" + *policy.alias : policy.name;
}

std::string folder_path() {
  if (const char *runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && *runtime == '/')
    return std::string(runtime) + "/policybridge";
  const char *temporary = std::getenv("TMPDIR");
  return std::string(temporary && *temporary ? temporary : "/tmp") + "/policybridge-" + std::to_string(geteuid());
}

/// The folder, if it is this user's alone. Others could otherwise switch the policy off, or lead the file elsewhere.
Descriptor open_folder() {
  const std::string path = folder_path();
  (void)mkdir(path.c_str(), 0700);
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about = {};
  if (folder.is_open() && fstat(folder.get(), &about) == 0 && about.st_uid == geteuid() && !(about.st_mode & 077))
    return folder;
  return Descriptor();
}

} // namespace

Outage::Outage(const std::string &address, const PolicyReference &policy, Time retry_after)
    : address_(without_scheme(address)), name_(sha256(absolute(address) + "\n" + text_of(policy)).substr(0, digits)),
      retry_after_(retry_after) {}

Status Outage::check() const {
  if (!(retry_after_.count() > 0))
    return {};
  const Descriptor folder = open_folder();
  struct stat about = {};
  if (!folder.is_open() || fstatat(folder.get(), name_.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0)
    return {};
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  const double age = static_cast<double>(now.tv_sec - about.st_mtim.tv_sec) +
                     static_cast<double>(now.tv_nsec - about.st_mtim.tv_nsec) / 1e9;
  // A file from the future was made before the clock was set back.
  if (age < 0 || age >= retry_after_.count()) {
    (void)unlinkat(folder.get(), name_.c_str(), 0);
    return {};
  }
  const auto time = [](double value) { return seconds(std::chrono::seconds(static_cast<long long>(value))); };
  return deadline_exceeded("the server at " + address_ + " did not answer in time " + time(age) +
                           " ago; it is asked again in " + time(retry_after_.count() - age + 1));
}

void Outage::remember(const Status &failure) const {
  if (failure.code() != StatusCode::DeadlineExceeded || !(retry_after_.count() > 0))
    return;
  const Descriptor folder = open_folder();
  if (!folder.is_open())
    return;
  const Descriptor file(
      openat(folder.get(), name_.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (file.is_open())
    (void)futimens(file.get(), nullptr);
}

} // namespace policybridge

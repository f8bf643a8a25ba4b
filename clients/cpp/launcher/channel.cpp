#include "channel.h"

#include "files.h"

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace policybridge {

namespace {

Result<Descriptor> open_pipe(const std::string &path) {
  if (mkfifo(path.c_str(), 0600) != 0)
    return system_error(errno, path);
  Descriptor end(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!end.is_open())
    return system_error(errno, path);
  return end;
}

} // namespace

std::vector<std::string> Channel::new_folders() {
  std::uint64_t chance = 0;
  while (getrandom(&chance, sizeof chance, 0) != sizeof chance) {
  }
  char name[32];
  (void)snprintf(name, sizeof name, "/policybridge-%016" PRIx64, chance);
  std::vector<std::string> folders;
  for (const std::string &place : {variable("TMPDIR"), variable("TEMP"), variable("TMP"), std::string("/tmp"),
                                   std::string("/var/tmp"), working_folder()})
    if (!place.empty() && access(place.c_str(), W_OK | X_OK) == 0)
      folders.push_back(absolute(place) + name);
  return folders;
}

Result<Channel> Channel::make(const std::string &folder) {
  if (mkdir(folder.c_str(), 0700) != 0)
    return system_error(errno, folder);
  Channel channel(folder);
  if (Status status = channel.open_pipes(); !status.ok())
    return status;
  return channel;
}

Status Channel::open_pipes() {
  for (Descriptor *end : {&replies_, &observations_}) {
    Result<Descriptor> opened = open_pipe(base() + (end == &replies_ ? ".in" : ".out"));
    if (!opened.ok())
      return opened.status();
    *end = *std::move(opened);
  }
  return {};
}

Channel::Channel(Channel &&other) noexcept
    : folder_(std::exchange(other.folder_, "")), replies_(std::move(other.replies_)),
      observations_(std::move(other.observations_)) {}

Channel::~Channel() {
  if (!folder_.empty())
    remove_tree(folder_);
}

void Channel::reply(std::string_view advice) const {
  // LLVM waits for each reply before it writes again, so there is always room in the pipe.
  while (write(replies_.get(), advice.data(), advice.size()) < 0 && errno == EINTR) {
  }
}

} // namespace policybridge

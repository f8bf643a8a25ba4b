#include "channel.h"

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

std::string absolute(const std::string &path) {
  return path.empty() || path.front() == '/' ? path : working_folder() + "/" + path;
}

Result<Descriptor> open_pipe(const std::string &path) {
  if (mkfifo(path.c_str(), 0600) != 0)
    return Error::system(errno, path);
  Descriptor end(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!end)
    return Error::system(errno, path);
  return end;
}

} // namespace

std::string Channel::new_folder() {
  std::string root = "/tmp";
  for (const std::string &place : {variable("TMPDIR"), variable("TEMP"), variable("TMP"), std::string("/tmp"),
                                   std::string("/var/tmp"), working_folder()})
    if (!place.empty() && access(place.c_str(), W_OK | X_OK) == 0) {
      root = absolute(place);
      break;
    }
  std::uint64_t chance = 0;
  while (getrandom(&chance, sizeof chance, 0) != sizeof chance) {
  }
  char name[32];
  (void)snprintf(name, sizeof name, "/policybridge-%016" PRIx64, chance);
  return root + name;
}

Result<Channel> Channel::make(const std::string &folder) {
  if (mkdir(folder.c_str(), 0700) != 0)
    return Error::system(errno, folder);
  Channel channel(folder);
  if (Failure failure = channel.open_pipes())
    return std::move(*failure);
  return channel;
}

Failure Channel::open_pipes() {
  for (Descriptor *end : {&replies_, &observations_}) {
    Result<Descriptor> opened = open_pipe(base() + (end == &replies_ ? ".in" : ".out"));
    if (!opened)
      return std::move(opened.error());
    *end = std::move(*opened);
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
  // LLVM waits for each reply, so that there is always room for it.
  while (write(replies_.get(), advice.data(), advice.size()) < 0 && errno == EINTR) {
  }
}

} // namespace policybridge

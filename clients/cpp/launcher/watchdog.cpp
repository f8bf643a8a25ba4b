#include "watchdog.h"

#include "files.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace policybridge {

namespace {

constexpr timespec grace = {1, 0};

/// Moves `descriptor` to standard input and closes all others. A pipe that the compiler inherited ends for its reader
/// only when every copy is closed, and this process must not hold one.
void close_all_but(int descriptor) {
  dup2(descriptor, STDIN_FILENO);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDOUT_FILENO);
  dup2(nothing, STDERR_FILENO);
  if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0) == 0)
    return;
  for (int number = STDERR_FILENO + 1; number < static_cast<int>(sysconf(_SC_OPEN_MAX)); ++number)
    close(number);
}

/// Reads the number of the compiler's group, then waits for the end of the pipe, which is the launcher's end. 0: no
/// compiler was started.
pid_t group_at_the_end() {
  pid_t group = 0, received = 0;
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, &received, sizeof received);
    if (got == sizeof received)
      group = received;
    else if (got >= 0 || errno != EINTR)
      return group;
  }
}

/// Survive what ends the launcher through its terminal or its process group.
void survive() {
  setpgid(0, 0);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    signal(number, SIG_IGN);
}

[[noreturn]] void watch(int line, const std::string &folder) {
  survive();
  prctl(PR_SET_NAME, "pb-watchdog");
  close_all_but(line);
  if (const pid_t group = group_at_the_end()) {
    kill(-group, SIGTERM);
    nanosleep(&grace, nullptr);
    kill(-group, SIGKILL);
  }
  remove_tree(folder);
  _exit(0);
}

} // namespace

Result<Watchdog> Watchdog::start(const std::string &folder) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return system_error(errno, folder);
  const Descriptor watched(ends[0]);
  Descriptor line(ends[1]);
  const pid_t number = fork();
  if (number == 0)
    watch(watched.get(), folder);
  if (number < 0)
    return system_error(errno, folder);
  return Watchdog(number, std::move(line));
}

Watchdog::Watchdog(Watchdog &&other) noexcept
    : number_(std::exchange(other.number_, 0)), line_(std::move(other.line_)) {}

Watchdog::~Watchdog() {
  if (!number_)
    return;
  kill(number_, SIGKILL);
  while (waitpid(number_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

} // namespace policybridge

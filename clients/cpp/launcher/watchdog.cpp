#include "watchdog.h"

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

/// Closes everything else: who reads a pipe of the compiler's must not wait for the watchdog's end.
void keep_only(int descriptor) {
  dup2(descriptor, STDIN_FILENO);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDOUT_FILENO);
  dup2(nothing, STDERR_FILENO);
  if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0) == 0)
    return;
  for (int number = STDERR_FILENO + 1; number < static_cast<int>(sysconf(_SC_OPEN_MAX)); ++number)
    close(number);
}

/// Takes the group's number, then waits for the end of the line: the launcher's.
pid_t group_at_the_end() {
  pid_t group = 0, told = 0;
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, &told, sizeof told);
    if (got == sizeof told)
      group = told;
    else if (got >= 0 || errno != EINTR)
      return group;
  }
}

/// What ends the launcher from a terminal or by its group must not end the watchdog too.
void survive() {
  setpgid(0, 0);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    signal(number, SIG_IGN);
}

[[noreturn]] void watch(int line, const std::string &folder) {
  survive();
  prctl(PR_SET_NAME, "pb-watchdog");
  keep_only(line);
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
    return Error::system(errno, folder);
  const Descriptor watched(ends[0]);
  Descriptor line(ends[1]);
  const pid_t number = fork();
  if (number == 0)
    watch(watched.get(), folder);
  if (number < 0)
    return Error::system(errno, folder);
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

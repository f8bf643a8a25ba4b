#include "process.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace policybridge {

namespace {

constexpr int grace_milliseconds = 2000;
constexpr int pause_milliseconds = 5;

std::vector<char *> pointers(const Words &words) {
  std::vector<char *> raw;
  for (const std::string &word : words)
    raw.push_back(const_cast<char *>(word.c_str()));
  raw.push_back(nullptr);
  return raw;
}

Words changed_environment(const Variables &variables) {
  Words changed;
  for (char **held = environ; *held; ++held) {
    const std::string_view entry = *held;
    bool replaced = false;
    for (const auto &variable : variables)
      replaced |= entry.substr(0, entry.find('=')) == variable.first;
    if (!replaced)
      changed.emplace_back(entry);
  }
  for (const auto &[name, value] : variables)
    changed.push_back(name + "=" + value);
  return changed;
}

void redirect(int output) {
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDERR_FILENO);
  dup2(output, STDOUT_FILENO);
}

/// Begins a group of its own. A terminal would stop a group in its background that reads or writes there, so that a
/// session is begun where there is one. Elsewhere that would be slow on a busy machine: to Linux every session is one
/// more rival for the processors (CONFIG_SCHED_AUTOGROUP), and its first process waits behind all others.
void begin_group() {
  if (isatty(STDIN_FILENO) || isatty(STDOUT_FILENO) || isatty(STDERR_FILENO))
    setsid();
  else
    setpgid(0, 0);
}

/// The new process, between fork and its program. `report` gets the errno where there is no program.
[[noreturn]] void run_child(char **command, char **environment, const Signals &signals, const Setup &setup,
                            int report) {
  begin_group();
  const pid_t number = getpid();
  // As early as that: whoever is told ends this group also if the launcher is killed in this moment.
  if (setup.tell >= 0 && write(setup.tell, &number, sizeof number) != sizeof number)
    _exit(127);
  if (setup.output >= 0)
    redirect(setup.output);
  signals.restore();
  execvpe(command[0], command, environment);
  const int error = errno;
  _exit(write(report, &error, sizeof error) == sizeof error ? 127 : 126);
}

bool is_alive(const char *process, pid_t group) {
  char path[64], stat[512] = {};
  if (snprintf(path, sizeof path, "/proc/%.20s/stat", process) < 0)
    return false;
  const Descriptor file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file || read(file.get(), stat, sizeof stat - 1) <= 0)
    return false;
  const char *behind_name = strrchr(stat, ')');
  char state = 0;
  int parent = 0, found = 0;
  if (!behind_name || sscanf(behind_name + 1, " %c %d %d", &state, &parent, &found) != 3)
    return false;
  return found == group && state != 'Z' && state != 'X';
}

// A driver ends before its cc1 has put its files away. The cc1 is no child of ours, so /proc has to tell.
bool is_group_alive(pid_t group) {
  DIR *processes = opendir("/proc");
  if (!processes)
    return false;
  bool alive = false;
  while (const dirent *entry = alive ? nullptr : readdir(processes))
    alive = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' && is_alive(entry->d_name, group);
  closedir(processes);
  return alive;
}

Failure taken(Signals &signals) {
  const std::optional<int> number = signals.taken();
  return number ? Failure(Error::signal(*number)) : Failure();
}

} // namespace

Result<Process> Process::start(const Words &command, const Signals &signals, const Setup &setup) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return Error::system(errno, command[0]);
  const Descriptor told(ends[0]);
  Descriptor report(ends[1]);
  const Words environment = changed_environment(setup.variables);
  std::vector<char *> words = pointers(command), surroundings = pointers(environment);
  const pid_t number = fork();
  if (number == 0)
    run_child(words.data(), surroundings.data(), signals, setup, report.get());
  if (number < 0)
    return Error::system(errno, command[0]);
  report.close();
  int error = 0;
  ssize_t got = 0;
  do
    got = read(told.get(), &error, sizeof error);
  while (got < 0 && errno == EINTR);
  Descriptor descriptor;
  if (got == 0) {
    descriptor = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, number, 0)));
    error = errno;
  }
  if (descriptor)
    return Process(number, std::move(descriptor));
  kill(-number, SIGKILL);
  waitpid(number, nullptr, 0);
  return Error::system(error, command[0]);
}

Process::~Process() {
  if (!descriptor_)
    return;
  end();
  reap();
}

Failure Process::await(Signals &signals, int timeout) const {
  pollfd sources[] = {{descriptor_.get(), POLLIN, 0}, {signals.descriptor(), POLLIN, 0}};
  while (poll(sources, 2, timeout) < 0 && errno == EINTR) {
  }
  return sources[0].revents ? Failure() : taken(signals);
}

void Process::end() const {
  kill(-number_, SIGTERM);
  const timespec pause = {0, pause_milliseconds * 1000000L};
  for (int waited = 0; waited < grace_milliseconds && is_group_alive(number_); waited += pause_milliseconds)
    nanosleep(&pause, nullptr);
  kill(-number_, SIGKILL);
}

int Process::reap() {
  // While its leader is not reaped the group's number is nobody else's.
  siginfo_t exited{};
  while (waitid(P_PID, static_cast<id_t>(number_), &exited, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  kill(-number_, SIGKILL);
  int status = 0;
  while (waitpid(number_, &status, 0) < 0 && errno == EINTR) {
  }
  descriptor_.close();
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Error become(const Words &command) {
  execvp(command[0].c_str(), pointers(command).data());
  return Error::system(errno, command[0]);
}

Result<std::string> output_of(const Words &command, Signals &signals, int timeout) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return Error::system(errno, command[0]);
  const Descriptor said(ends[0]);
  Descriptor saying(ends[1]);
  Setup setup;
  setup.output = saying.get();
  Result<Process> process = Process::start(command, signals, setup);
  if (!process)
    return std::move(process.error());
  saying.close();
  // What fits into a pipe is all that is wanted, and more would wait there for ever.
  if (Failure failure = process->await(signals, timeout))
    return std::move(*failure);
  std::string text(PIPE_BUF, '\0');
  const ssize_t got = fcntl(said.get(), F_SETFL, O_NONBLOCK) == 0 ? read(said.get(), text.data(), text.size()) : 0;
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

} // namespace policybridge

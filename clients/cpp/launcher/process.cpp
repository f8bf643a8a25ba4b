#include "process.h"

#include "files.h"
#include "lacking.h"
#include "utf8.h"

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

/// In the words of `policybridge run`.
Status cannot_start(int error, const std::string &program) {
  if (error != ENOENT)
    return system_error(error, program);
  return {StatusCode::NotFound,
          lacking("there is no program '" + program + "': give the compiler's name or path behind --")};
}

constexpr int grace_milliseconds = 2000;
constexpr int pause_milliseconds = 5;

std::vector<char *> pointers(const Strings &words) {
  std::vector<char *> raw;
  for (const std::string &word : words)
    raw.push_back(const_cast<char *>(word.c_str()));
  raw.push_back(nullptr);
  return raw;
}

Strings changed_environment(const Variables &variables) {
  Strings changed;
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

void redirect(int output, bool with_errors) {
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(with_errors ? output : nothing, STDERR_FILENO);
  dup2(output, STDOUT_FILENO);
}

/// Begins a process group. A terminal stops a background group that reads or writes it, so where there is a terminal, a
/// session is begun as well. Elsewhere a session would be slow on a busy machine: with CONFIG_SCHED_AUTOGROUP Linux
/// schedules each session as one more competitor, and its first process waits behind all others.
void begin_group() {
  if (isatty(STDIN_FILENO) || isatty(STDOUT_FILENO) || isatty(STDERR_FILENO))
    setsid();
  else
    setpgid(0, 0);
}

/// The new process, between fork and exec. Where exec fails, its errno is written to `report`.
[[noreturn]] void run_child(char **command, char **environment, const Signals &signals, const ProcessOptions &options,
                            int report) {
  begin_group();
  const pid_t number = getpid();
  // First of all, so that the watchdog can end this group even if the launcher is killed in this moment.
  if (options.number_to >= 0 && write(options.number_to, &number, sizeof number) != sizeof number)
    _exit(127);
  if (options.output >= 0)
    redirect(options.output, options.with_errors);
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
  if (!file.is_open() || read(file.get(), stat, sizeof stat - 1) <= 0)
    return false;
  const char *behind_name = strrchr(stat, ')');
  char state = 0;
  int parent = 0, its_group = 0;
  if (!behind_name || sscanf(behind_name + 1, " %c %d %d", &state, &parent, &its_group) != 3)
    return false;
  return its_group == group && state != 'Z' && state != 'X';
}

// A driver ends before its cc1 has removed its files. The cc1 is not a child of the launcher, so look it up in /proc.
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

} // namespace

Result<Process> Process::start(const Strings &command, const Signals &signals, const ProcessOptions &options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return cannot_start(errno, command[0]);
  const Descriptor failure(ends[0]);
  Descriptor report(ends[1]);
  const Strings environment = changed_environment(options.variables);
  std::vector<char *> words = pointers(command), surroundings = pointers(environment);
  const pid_t number = fork();
  if (number == 0)
    run_child(words.data(), surroundings.data(), signals, options, report.get());
  if (number < 0)
    return cannot_start(errno, command[0]);
  report.close();
  int error = 0;
  ssize_t got = 0;
  do
    got = read(failure.get(), &error, sizeof error);
  while (got < 0 && errno == EINTR);
  Descriptor descriptor;
  if (got == 0) {
    descriptor = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, number, 0)));
    error = errno;
  }
  if (descriptor.is_open())
    return Process(number, std::move(descriptor));
  kill(-number, SIGKILL);
  waitpid(number, nullptr, 0);
  return cannot_start(error, command[0]);
}

Process::~Process() {
  if (!descriptor_.is_open())
    return;
  end();
  reap();
}

Status Process::await(Signals &signals, int timeout) const {
  pollfd sources[] = {{descriptor_.get(), POLLIN, 0}, {signals.descriptor(), POLLIN, 0}};
  while (poll(sources, 2, timeout) < 0 && errno == EINTR) {
  }
  return !sources[0].revents && signals.received() ? interrupted() : Status();
}

void Process::end() const {
  kill(-number_, SIGTERM);
  const timespec pause = {0, pause_milliseconds * 1000000L};
  for (int waited = 0; waited < grace_milliseconds && is_group_alive(number_); waited += pause_milliseconds)
    nanosleep(&pause, nullptr);
  kill(-number_, SIGKILL);
}

int Process::reap() {
  // As long as its leader is not reaped, no other group can get the same number.
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

Status become(const Strings &command) {
  execvp(command[0].c_str(), pointers(command).data());
  return cannot_start(errno, command[0]);
}

Result<std::string> output_of(const Strings &command, Signals &signals, int timeout, bool with_errors) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return cannot_start(errno, command[0]);
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  ProcessOptions options;
  options.output = writing.get();
  options.with_errors = with_errors;
  Result<Process> process = Process::start(command, signals, options);
  if (!process.ok())
    return process.status();
  writing.close();
  // The output is read once, at the end: a program that writes more than a pipe holds waits until the time-out.
  if (Status status = process->await(signals, timeout); !status.ok())
    return status;
  std::string text(PIPE_BUF, '\0');
  const ssize_t got =
      fcntl(reading.get(), F_SETFL, O_NONBLOCK) == 0 ? read(reading.get(), text.data(), text.size()) : 0;
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

void say(const std::string &message) { (void)fprintf(stderr, "policybridge-run: %s\n", one_line(message).c_str()); }

void remark(const Strings &command, const std::string &message) {
  if (!is_trial(command))
    say(message);
}

} // namespace policybridge

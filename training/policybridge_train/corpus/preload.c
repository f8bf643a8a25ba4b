/* For `policybridge corpus record`: a tool that a build starts by its path, as CMake's and Meson's build files do, is
 * started through the wrapper, as one on PATH is.
 *
 * POLICYBRIDGE_WRAPPER names the wrapper; it is unset in what a wrapper starts, so that nothing is noted twice. A new
 * process may share its parent's memory until it has become another program (vfork), so nothing here allocates but on
 * the stack. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define WRAPPER "POLICYBRIDGE_WRAPPER="
#define TOOL "POLICYBRIDGE_TOOL="
#define LONGEST 4096

extern char **environ;

static const char *const tools[] = {"cc",  "c++", "gcc",    "g++",     "clang",   "clang++", "c89",    "c99",   "ld",
                                    "lld", "ar",  "ld.bfd", "ld.gold", "ld.lld",  "ld.mold", "mold",   "ccache", "sccache",
                                    "distcc", "icecc"};

static const char *setting(char *const *environment, const char *name) {
  for (; environment && *environment; ++environment)
    if (strncmp(*environment, name, strlen(name)) == 0)
      return *environment + strlen(name);
  return NULL;
}

/* Whether the last part of a name, without a version behind it, is a tool's: x86_64-linux-gnu-g++-12. */
static int is_tool(const char *path) {
  const char *name = strrchr(path, '/');
  size_t length, index;
  name = name ? name + 1 : path;
  length = strlen(name);
  index = length;
  while (index > 0 && strchr("0123456789.", name[index - 1]))
    --index;
  if (index > 1 && index < length && name[index - 1] == '-')
    length = index - 1;
  for (index = length; index > 0 && name[index - 1] != '-';)
    --index;
  for (size_t one = 0; one < sizeof tools / sizeof *tools; ++one)
    if (strlen(tools[one]) == length - index && strncmp(tools[one], name + index, length - index) == 0)
      return 1;
  return 0;
}

static size_t count(char *const *words) {
  size_t number = 0;
  while (words && words[number])
    ++number;
  return number;
}

/* The wrapper, if a path is to be started through it. */
static const char *wrapper_for(const char *path, char *const *environment) {
  const char *wrapper = setting(environment, WRAPPER);
  const char *end = wrapper ? strrchr(wrapper, '/') : NULL;
  if (!end || !path || !strchr(path, '/') || strlen(path) >= LONGEST || !is_tool(path) || access(path, X_OK) != 0)
    return NULL;
  /* A build folder may remember a wrapper. */
  return strncmp(path, wrapper, (size_t)(end - wrapper) + 1) == 0 ? NULL : wrapper;
}

/* Fill `changed` with the environment and the tool's path, which `room` holds. */
static void with_tool(char **changed, char *room, const char *path, char *const *environment) {
  size_t number = count(environment);
  strcpy(room, TOOL);
  strcat(room, path);
  memcpy(changed, environment, number * sizeof *changed);
  changed[number] = room;
  changed[number + 1] = NULL;
}

typedef int exec_function(const char *, char *const *, char *const *);
typedef int spawn_function(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                           char *const *, char *const *);

static int start(const char *real, const char *path, char *const *words, char *const *environment) {
  exec_function *next = (exec_function *)dlsym(RTLD_NEXT, real);
  const char *wrapper = wrapper_for(path, environment);
  if (!next) {
    errno = ENOSYS;
    return -1;
  }
  if (!wrapper)
    return next(path, words, environment);
  char room[LONGEST + sizeof TOOL];
  char *changed[count(environment) + 2];
  with_tool(changed, room, path, environment);
  return next(wrapper, words, changed);
}

int execve(const char *path, char *const words[], char *const environment[]) {
  return start("execve", path, words, environment);
}

int execvpe(const char *path, char *const words[], char *const environment[]) {
  return start("execvpe", path, words, environment);
}

int execv(const char *path, char *const words[]) { return start("execve", path, words, environ); }

int execvp(const char *path, char *const words[]) { return start("execvpe", path, words, environ); }

/* The words of execl and its kin, up to the null that ends them, as an array. */
#define COLLECT(first, words)                                                                                          \
  va_list list;                                                                                                        \
  size_t number = 1;                                                                                                   \
  va_start(list, first);                                                                                               \
  while (va_arg(list, char *))                                                                                         \
    ++number;                                                                                                          \
  va_end(list);                                                                                                        \
  char *words[number + 1];                                                                                             \
  words[0] = (char *)first;                                                                                            \
  va_start(list, first);                                                                                               \
  for (size_t index = 1; index <= number; ++index)                                                                     \
    words[index] = va_arg(list, char *);

int execl(const char *path, const char *first, ...) {
  COLLECT(first, words)
  va_end(list);
  return start("execve", path, words, environ);
}

int execlp(const char *path, const char *first, ...) {
  COLLECT(first, words)
  va_end(list);
  return start("execvpe", path, words, environ);
}

int execle(const char *path, const char *first, ...) {
  COLLECT(first, words)
  char **environment = va_arg(list, char **);
  va_end(list);
  return start("execve", path, words, environment);
}

static int spawn(const char *real, pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const *words, char *const *environment) {
  spawn_function *next = (spawn_function *)dlsym(RTLD_NEXT, real);
  const char *wrapper = wrapper_for(path, environment);
  if (!next)
    return ENOSYS;
  if (!wrapper)
    return next(pid, path, actions, attributes, words, environment);
  char room[LONGEST + sizeof TOOL];
  char *changed[count(environment) + 2];
  with_tool(changed, room, path, environment);
  return next(pid, wrapper, actions, attributes, words, changed);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const words[], char *const environment[]) {
  return spawn("posix_spawn", pid, path, actions, attributes, words, environment);
}

int posix_spawnp(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const words[], char *const environment[]) {
  return spawn("posix_spawnp", pid, path, actions, attributes, words, environment);
}

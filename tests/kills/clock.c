/* Preloaded into a process: its time of day is wrong by the seconds in a file, as after a jump of the machine's clock.

   KILLS_CLOCK names the file: one int64_t of this machine, which may change at any time. Monotonic clocks are right.
   Not libfaketime: with FAKETIME_DONT_FAKE_MONOTONIC its clock_nanosleep takes an absolute monotonic time for one of
   the wrong clock, so that Python's time.sleep raises EINVAL, and timed waits return at once (0.9.10). */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void find(void) {
  /* dlsym gives an object pointer, and POSIX lets it be a function's. */
  *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("KILLS_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0)
    return;
  void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED)
    offset = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int status = real ? real(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
  if (!status && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += *offset;
  return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec exact;
  int status = clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return status;
}

time_t time(time_t *result) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (result)
    *result = exact.tv_sec;
  return exact.tv_sec;
}

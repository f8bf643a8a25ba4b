#include "load.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <vector>

#include <sys/prctl.h>

namespace bench {

using policybridge::Status;

namespace {

constexpr std::size_t warm_up_asks = 200;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

void sleep_for(double seconds) {
  timespec wait{};
  wait.tv_sec = static_cast<std::time_t>(seconds);
  wait.tv_nsec = static_cast<long>((seconds - static_cast<double>(wait.tv_sec)) * 1e9);
  nanosleep(&wait, nullptr);
}

Status warm_up(Client &client, double seconds) {
  const double started = now();
  std::size_t number = 0;
  for (double passed = 0; passed < seconds || (number < warm_up_asks && passed < 1); passed = now() - started)
    if (Status status = client.ask(number++); !status.ok())
      return status;
  return {};
}

Status ask_closed(Client &client, double seconds, std::vector<float> &latencies) {
  const double end = now() + seconds;
  for (double started = now(); started < end;) {
    if (Status status = client.ask(latencies.size()); !status.ok())
      return status;
    const double answered = now();
    latencies.push_back(static_cast<float>((answered - started) * 1e6));
    started = now();
  }
  return {};
}

/// Latency counts from when an ask was due, also where the one before it was answered later.
Status ask_open(Client &client, double seconds, double rate, std::vector<float> &latencies) {
  // By default the kernel wakes a sleeper up to 50 µs late, which is as much as an answer takes.
  prctl(PR_SET_TIMERSLACK, 1);
  const auto count = static_cast<std::size_t>(seconds * rate);
  const double started = now();
  for (std::size_t number = 0; number < count; ++number) {
    const double due = started + static_cast<double>(number) / rate;
    if (const double wait = due - now(); wait > 0)
      sleep_for(wait);
    if (Status status = client.ask(number); !status.ok())
      return status;
    latencies.push_back(static_cast<float>((now() - due) * 1e6));
  }
  return {};
}

void tell(const std::vector<float> &latencies, double seconds, double cpu) {
  std::printf("{\"count\":%zu,\"seconds\":%.9f,\"cpu\":%.9f}\n", latencies.size(), seconds, cpu);
  std::fwrite(latencies.data(), sizeof(float), latencies.size(), stdout);
  std::fflush(stdout);
}

} // namespace

Status measure(Client &client, const Options &options) {
  if (Status status = warm_up(client, options.warm_up); !status.ok())
    return status;
  std::vector<float> latencies;
  // Reserve now: a page fault while measuring would count as latency.
  latencies.reserve(static_cast<std::size_t>(options.seconds * (options.rate ? *options.rate : 200e3)) + 16);
  std::puts("ready");
  std::fflush(stdout);
  if (std::getchar() == EOF)
    return policybridge::failed_precondition("standard input ended before the line that starts the measurement");
  const double cpu = cpu_seconds();
  const double started = now();
  Status status = options.rate ? ask_open(client, options.seconds, *options.rate, latencies)
                               : ask_closed(client, options.seconds, latencies);
  if (status.ok())
    tell(latencies, now() - started, cpu_seconds() - cpu);
  return status;
}

} // namespace bench

// Whole sessions of one client, for tests/measures/sessions_here.py:
// sessions_here ADDRESS POLICY there|auto|here HEADER ROWS DECISIONS SESSIONS
// HEADER is a file with a header line of LLVM's protocol, ROWS one with packed observations. Prints the median of a
// session with its outcome, in nanoseconds, and its mean processor time.

#include "local_session.h"
#include "protocol.h"

#include "policybridge/policybridge.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

using namespace policybridge;

namespace {

std::string content(const char *path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Status run(Connection &connection, const OpenOptions &options, const Signature &signature, const std::string &rows,
           std::uint64_t decisions) {
  const auto session = open_session(connection, options, signature);
  if (!session.ok())
    return session.status();
  const auto size = static_cast<std::size_t>(signature.observation_size());
  AdviceBuffer advice;
  for (std::uint64_t step = 1; step <= decisions; ++step)
    if (Status status = (*session)->evaluate(step, {rows.data() + (step * size) % rows.size(), size}, advice); !status.ok())
      return status;
  return (*session)->conclude({{{"text", 1}}, "ok"});
}

} // namespace

int main(int, char **words) {
  using Clock = std::chrono::steady_clock;
  const auto connection = connect(words[1]);
  OpenOptions options;
  options.policy = *PolicyReference::parse(words[2]);
  options.evaluate = *parse_evaluate(words[3]);
  const auto signature = protocol::parse_header(content(words[4]));
  const std::string rows = content(words[5]);
  const std::uint64_t decisions = std::strtoull(words[6], nullptr, 10), sessions = std::strtoull(words[7], nullptr, 10);
  std::vector<std::int64_t> times;
  const std::clock_t processor = std::clock();
  for (std::uint64_t number = 0; number < sessions; ++number) {
    const Clock::time_point begun = Clock::now();
    if (Status status = run(**connection, options, *signature, rows, decisions); !status.ok()) {
      std::cerr << status.message() << "\n";
      return 1;
    }
    times.push_back((Clock::now() - begun).count());
  }
  const double used = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC / static_cast<double>(sessions);
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(sessions / 2), times.end());
  std::printf("%lld %.9f\n", static_cast<long long>(times[sessions / 2]), used);
}

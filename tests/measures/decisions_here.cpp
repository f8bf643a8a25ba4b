// Decisions of one client, timed each for itself, for tests/measures/decisions_here.py:
// decisions_here ADDRESS POLICY there|here HEADER ROWS COUNT
// HEADER is a file with a header line of LLVM's protocol, ROWS one with packed observations.

#include "local_session.h"
#include "protocol.h"

#include "policybridge/policybridge.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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

int failed(const Status &status) {
  std::cerr << status.message() << "\n";
  return 1;
}

} // namespace

int main(int, char **words) {
  using Clock = std::chrono::steady_clock;
  const auto connection = connect(words[1]);
  if (!connection.ok())
    return failed(connection.status());
  OpenOptions options;
  options.policy = *PolicyReference::parse(words[2]);
  const auto place = parse_evaluate(words[3]);
  if (!place.ok())
    return failed(place.status());
  options.evaluate = *place;
  const auto signature = protocol::parse_header(content(words[4]));
  if (!signature.ok())
    return failed(signature.status());
  const auto session = open_session(**connection, options, *signature);
  if (!session.ok())
    return failed(session.status());
  const std::string rows = content(words[5]);
  const auto size = static_cast<std::size_t>(signature->observation_size());
  const std::uint64_t count = std::strtoull(words[6], nullptr, 10);
  std::vector<std::int64_t> times;
  times.reserve(count);
  AdviceBuffer advice;
  // Begin when told: the processes are to run at the same time.
  std::cout << "ready" << std::endl;
  std::cin.get();
  const Clock::time_point begun = Clock::now();
  for (std::uint64_t step = 1; step <= count; ++step) {
    const std::string_view row(rows.data() + (step * size) % rows.size(), size);
    const Clock::time_point asked = Clock::now();
    if (Status status = (*session)->evaluate(step, row, advice); !status.ok())
      return failed(status);
    times.push_back((Clock::now() - asked).count());
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(count / 2), times.end());
  std::printf("%lld %.6f\n", static_cast<long long>(times[count / 2]), seconds);
}

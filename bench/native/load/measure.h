#ifndef POLICYBRIDGE_BENCH_MEASURE_H
#define POLICYBRIDGE_BENCH_MEASURE_H

#include "options.h"
#include "policybridge/status.h"

#include <cstddef>

namespace bench {

/// A client of one kind.
class Client {
public:
  virtual ~Client() = default;
  /// Send message `number` (counted without end; the client begins again at its first) and wait for the answer.
  virtual policybridge::Status ask(std::size_t number) = 0;

protected:
  Client() = default;
  Client(const Client &) = delete;
  Client &operator=(const Client &) = delete;
};

/// Warm up, print `ready`, wait for a line, ask, and print what was seen; see policybridge_bench/load.py.
policybridge::Status measure(Client &client, const Options &options);

} // namespace bench

#endif

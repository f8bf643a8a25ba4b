/// A client that asks as a compiler does, one observation after another; see policybridge_bench/load.py.

#include "load.h"

#include <cstdio>
#include <utility>

namespace {

struct Kind {
  const char *name;
  bench::Made (*make)(const bench::Options &, bench::Messages);
};

constexpr Kind kinds[] = {{"session", bench::make_session},
                          {"unary", bench::make_unary},
                          {"stream", bench::make_stream},
                          {"socket", bench::make_socket},
                          {"http", bench::make_http}};

policybridge::Status run(const bench::Options &options) {
  policybridge::Result<bench::Messages> messages = bench::read_messages(options.file);
  if (!messages)
    return messages.status();
  for (const Kind &kind : kinds) {
    if (options.kind != kind.name)
      continue;
    bench::Made client = kind.make(options, *std::move(messages));
    return client ? bench::measure(**client, options) : client.status();
  }
  return policybridge::not_found("no kind of client is called " + options.kind);
}

} // namespace

int main(int count, char **words) {
  const std::optional<bench::Options> options = bench::parse_options(count, words);
  if (!options)
    return 2;
  const policybridge::Status status = run(*options);
  if (!status.ok())
    std::fprintf(stderr, "policybridge-load: %s: %s\n", policybridge::to_string(status.code()),
                 status.message().c_str());
  return status.ok() ? 0 : 1;
}

// Goes through the early connection of the plugins, for tests/native/library/test_early_connection.py.
//
//     policybridge-early SERVER POLICY HEADER MODE [SECONDS]
//
// HEADER is the first line of LLVM's interactive protocol. MODE: `decides` (3,000 zeros by the form, and an outcome),
// `fails` (the session is ended without an outcome), `differs` (another session is expected than asked for), `expects`
// (nothing is asked), `connects` (nothing is even expected). SECONDS is how long it waits for the server, 10 by default.
// Prints the session's id, and the reason where there is none.

#include "early_connection.h"
#include "protocol.h"

#include <cstdio>
#include <cstdlib>
#include <string>

using namespace policybridge;
using policybridge::plugin::EarlyConnection;

namespace {

constexpr int decisions = 3000;

/// Never destroyed, as in the plugins: the process may exit while the thread still loads gRPC.
std::shared_ptr<EarlyConnection> &early = *new std::shared_ptr<EarlyConnection>;

void at_exit() { early->end(); }

Status ask(const OpenOptions &options, const Signature &signature, const std::string &mode) {
  if (Status reached = early->check(); !reached.ok())
    return reached;
  auto runner = ModelRunner::open(early, options, signature.features, signature.advice);
  if (!runner.ok())
    return runner.status();
  for (int n = 0; n < decisions; ++n)
    if (auto advice = (*runner)->evaluate(); !advice.ok())
      return advice.status();
  std::printf("%s\n", (*runner)->session()->id.c_str());
  if (mode == "fails")
    return {};
  early->finish(*std::move(runner), {{{"decisions", decisions}}, "ok"});
  return {};
}

} // namespace

int main(int count, char **words) {
  if (count != 5 && count != 6)
    return 2;
  const std::string mode = words[4];
  const auto policy = PolicyReference::parse(words[2]);
  const auto signature = protocol::parse_header(words[3]);
  const std::chrono::seconds patience(count == 6 ? std::atoi(words[5]) : 10);
  early = EarlyConnection::begin(words[1], patience, at_exit);
  if (!policy.ok() || !signature.ok() || !early)
    return 2;
  OpenOptions options{*policy, "main.c", {}, {}, {}};
  options.several_kinds = true;
  options.evaluate = Evaluate::Here;
  OpenOptions expected = options;
  if (mode == "differs")
    expected.context = "other.c";
  if (mode != "connects")
    early->expect(expected, signature->advice.name);
  if (mode == "decides" || mode == "differs" || mode == "fails")
    if (const Status failure = ask(options, *signature, mode); !failure.ok())
      std::printf("%s\n", failure.message().c_str());
  // The plugins are ended by LLVM, or at the exit.
  if (mode != "decides")
    early->end();
  return 0;
}

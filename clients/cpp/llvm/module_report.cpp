#include "module_report.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <vector>

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// The command line of this process; empty where the system does not give it.
std::vector<std::string> own_command() {
  auto text = MemoryBuffer::getFileAsStream("/proc/self/cmdline");
  SmallVector<StringRef> words;
  if (text)
    (*text)->getBuffer().split(words, '\0', -1, false);
  return {words.begin(), words.end()};
}

} // namespace

Outcome ModuleReport::to_outcome() const {
  const char *status = statistics.failure.ok() ? "ok" : fatal ? "error" : "fallback";
  return {{{"asked", static_cast<double>(statistics.decisions)},
           {"defaults", static_cast<double>(statistics.defaults)},
           {"inlined", static_cast<double>(inlined)},
           {"instructions_before", static_cast<double>(instructions_before)},
           {"instructions_after", static_cast<double>(instructions_after)},
           {"seconds", seconds}},
          status};
}

Error ModuleReport::write(const std::string &path) const {
  CompilationReport report;
  report.statistics = statistics;
  report.seconds = seconds;
  if (fatal)
    report.error = statistics.failure;
  else if (!statistics.failure.ok())
    report.fallback = FallbackReport{statistics.failure, statistics.defaults, false};
  return writeToOutput(path, [&](raw_ostream &out) {
    out << report.to_json("inline", own_command());
    return Error::success();
  });
}

} // namespace policybridge::plugin

#include "module_session.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace llvm;

namespace policybridge::plugin {

AnalysisKey ModuleSessionAnalysis::Key;

namespace {

using Clock = std::chrono::steady_clock;

/// The name of the module's source file; its identifier where a linker made the module.
std::string name_of(const Module &module) {
  return module.getSourceFileName().empty() ? module.getModuleIdentifier() : module.getSourceFileName();
}

void replace_all(std::string &text, StringRef what, const std::string &by) {
  for (std::size_t at = 0; (at = text.find(what.str(), at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

/// The statistics file of this process and module; `%p` and `%m` in the pattern stand for them.
std::string file_of(std::string pattern, std::string module) {
  std::replace_if(
      module.begin(), module.end(), [](char c) { return !isAlnum(c) && !StringRef("._-").contains(c); }, '_');
  replace_all(pattern, "%p", std::to_string(sys::Process::getProcessId()));
  replace_all(pattern, "%m", module);
  return pattern;
}

std::uint64_t instructions_of(Module &module) {
  std::uint64_t count = 0;
  for (Function &function : module)
    for (BasicBlock &block : function)
      count += static_cast<std::uint64_t>(block.sizeWithoutDebug());
  return count;
}

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

} // namespace

ModuleSession::ModuleSession(Module &module, ModuleAnalysisManager &analyses,
                             std::shared_ptr<const Configuration> configuration)
    : module_(module), analyses_(analyses), configuration_(std::move(configuration)),
      advisor_(configuration_->settings, name_of(module)), begun_(Clock::now()) {
  advisor_.report().statistics.failure = configuration_->invalid;
  advisor_.report().instructions_before = instructions_of(module);
  fail_without_default();
}

bool ModuleSession::has_policy() {
  return configuration_->settings.default_stands_in ? advisor_.connect_to_server()
                                                    : advisor_.report().statistics.failure.ok();
}

bool ModuleSession::decide(ArrayRef<Feature> features) {
  const bool inlines = advisor_.decide(features);
  fail_without_default();
  return inlines;
}

void ModuleSession::fail_without_default() {
  ModuleReport &report = advisor_.report();
  const Status &failure = report.statistics.failure;
  if (failure.ok() || configuration_->settings.default_stands_in || report.fatal)
    return;
  report.fatal = true;
  // Written now, because opt exits at the error.
  write_statistics();
  module_.getContext().emitError("policybridge: no advice: " + failure.message());
}

ModuleSession::~ModuleSession() {
  ModuleReport &report = advisor_.report();
  const Statistics &statistics = report.statistics;
  report.instructions_after = instructions_of(module_);
  report.seconds = seconds_since(begun_);
  advisor_.finish();
  if (!statistics.failure.ok() && !report.fatal) {
    const std::string count = statistics.decisions ? std::to_string(statistics.defaults) : "all";
    errs() << "policybridge: " << count << " decisions are the compiler's own: " << statistics.failure.message()
           << "\n";
  }
  write_statistics();
}

void ModuleSession::write_statistics() {
  const std::string &path = configuration_->settings.stats;
  if (path.empty())
    return;
  advisor_.report().seconds = seconds_since(begun_);
  if (Error error = advisor_.report().write(file_of(path, name_of(module_))))
    errs() << "policybridge: no statistics: " << toString(std::move(error)) << "\n";
}

} // namespace policybridge::plugin

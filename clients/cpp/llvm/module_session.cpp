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

/// By what LLVM calls its source; that of the linker's modules is their identifier.
std::string name_of(const Module &module) {
  return module.getSourceFileName().empty() ? module.getModuleIdentifier() : module.getSourceFileName();
}

void replace_all(std::string &text, StringRef what, const std::string &by) {
  for (std::size_t at = 0; (at = text.find(what.str(), at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

/// One file for each process and module, where the pattern says so.
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
      asker_(configuration_->settings, name_of(module)), begun_(Clock::now()) {
  asker_.statistics().failure = configuration_->invalid;
  asker_.statistics().instructions_before = instructions_of(module);
  fail_where_wanted();
}

bool ModuleSession::can_ask() {
  return configuration_->settings.default_stands_in ? asker_.can_ask() : asker_.statistics().failure.ok();
}

bool ModuleSession::decide(ArrayRef<Feature> features) {
  const bool inlines = asker_.decide(features);
  fail_where_wanted();
  return inlines;
}

void ModuleSession::fail_where_wanted() {
  Statistics &statistics = asker_.statistics();
  if (statistics.failure.ok() || configuration_->settings.default_stands_in || statistics.fatal)
    return;
  statistics.fatal = true;
  // opt ends at the error, and the statistics would be lost.
  write_statistics();
  module_.getContext().emitError("policybridge: no advice: " + statistics.failure.message());
}

ModuleSession::~ModuleSession() {
  Statistics &statistics = asker_.statistics();
  statistics.instructions_after = instructions_of(module_);
  statistics.seconds = seconds_since(begun_);
  asker_.finish();
  if (!statistics.failure.ok() && !statistics.fatal) {
    const std::string count = statistics.decisions() ? std::to_string(statistics.defaults) : "all";
    errs() << "policybridge: " << count << " decisions are the compiler's own: " << statistics.failure.message()
           << "\n";
  }
  write_statistics();
}

void ModuleSession::write_statistics() {
  const std::string &path = configuration_->settings.stats;
  if (path.empty())
    return;
  asker_.statistics().seconds = seconds_since(begun_);
  if (Error error = asker_.statistics().write(file_of(path, name_of(module_))))
    errs() << "policybridge: no statistics: " << toString(std::move(error)) << "\n";
}

} // namespace policybridge::plugin

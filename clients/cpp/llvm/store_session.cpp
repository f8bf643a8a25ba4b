#include "store_session.h"

#include "../launcher/files.h"
#include "cache_key.h"
#include "module_names.h"
#include "module_stage.h"
#include "process_names.h"
#include "telling.h"

#include "compiler_cache.h"
#include "found_store.h"
#include "percent.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace policybridge::plugin {
namespace {

using Clock = std::chrono::steady_clock;

/// What an order of -policybridge-module says instead of the module.
std::string path_of(const Module &module, const Settings &settings) {
  return settings.module.empty() ? name_of(module) : settings.module;
}

CompiledModule describe(const Module &module, const Settings &settings, const std::string &phase) {
  ModuleTraits traits = ModuleTraits::of(module);
  return {std::to_string(LLVM_VERSION_MAJOR), std::move(traits.level), "site", std::move(traits.digest),
          path_of(module, settings), phase == link_phase};
}

} // namespace

StoreSession::StoreSession(Module &module, ModuleAnalysisManager &analyses, std::shared_ptr<const Configuration> configuration)
    : module_(module), configuration_(std::move(configuration)), phase_(phase_of(module, analyses)),
      failure_(configuration_->invalid), begun_(Clock::now()) {
  const Settings &settings = configuration_->settings;
  report_.store = settings.decisions;
  if (configuration_->store)
    store_ = &*configuration_->store;
  if (failure_.ok() && settings.finds_store)
    failure_ = find_own_store();
  const bool is_logged = failure_.ok() && !settings.sites.empty();
  const bool has_pass_log = failure_.ok() && !settings.passes.empty();
  if ((store_ && !store_->sections().empty()) || is_logged || has_pass_log)
    compiled_ = describe(module, settings, phase_);
  report_.module = path_of(module, settings);
  if (failure_.ok() && store_)
    failure_ = read_store();
  if (!failure_.ok())
    fail(failure_);
  if (is_logged)
    log_.emplace();
  if (!decisions_.inlining.empty() || is_logged)
    sites_.emplace(module);
  if (!decisions_.passes.empty() || has_pass_log)
    passes_ = std::make_shared<ModulePasses>(std::move(decisions_.passes), has_pass_log ? open_pass_log() : nullptr);
}

/// Look for the project's own store. One that may not be used is told, and is no failure: it was not asked for.
Status StoreSession::find_own_store() {
  FoundStore found = find_store(name_of(module_));
  if (const std::string cache = compiler_cache(); found.is_taken() && !cache.empty())
    found.refused = check_in_key(cache, found.path, "the store changes").message();
  if (!found.refused.empty())
    remark(found.path + " is not applied: " + found.refused);
  if (!found.is_taken())
    return Status();
  if (is_contained(own_command(), "-v"))
    remark("decisions of " + found.path);
  report_.store = found.path;
  auto opened = DecisionStore::open(found.path);
  if (!opened.ok())
    return opened.status();
  store_ = &found_.emplace(std::move(*opened));
  return Status();
}

Status StoreSession::read_store() {
  const DecisionStore &store = *store_;
  const DecisionStore::Section *section = store.find(compiled_);
  const Phases &phases = configuration_->settings.phases;
  if (!section) {
    // A module without functions, as that of an object of which a program uses nothing, has no level.
    const bool is_empty = all_of(module_, [](const Function &function) { return function.isDeclaration(); });
    const std::string why = phases.holds(phase_) && !is_empty ? store.mismatch(compiled_) : "";
    if (!why.empty())
      remark(file_name(report_.store) + " " + why);
    return Status();
  }
  if (!phases.holds(phase_)) {
    if (!phases.is_given && DecisionStore::is_path_of(*section, compiled_))
      remark(file_name(report_.store) + " is not applied to " + report_.module + " in the phase '" + phase_ +
             "', in which LLVM decides unless POLICYBRIDGE_PHASES holds it");
    return Status();
  }
  auto decisions = store.read(*section);
  if (!decisions.ok())
    return decisions.status();
  decisions_ = std::move(*decisions);
  report_.exact = section->module.digest == compiled_.digest;
  report_.decisions = decisions_.size();
  if (section->module.llvm != compiled_.llvm)
    tuned_with_ = section->module.llvm;
  is_own_section_ = DecisionStore::is_path_of(*section, compiled_);
  size_ = static_cast<double>(module_.getInstructionCount());
  return Status();
}

std::unique_ptr<PassLog> StoreSession::open_pass_log() const {
  return PassLog::open(file_of(configuration_->settings.passes, name_of(module_)),
                       "policybridge-passes 1\t" + compiled_.digest + "\t" + compiled_.level + "\t" +
                           percent_encoded(compiled_.path));
}

void StoreSession::fail(const Status &why) {
  if (!configuration_->settings.default_stands_in) {
    fatal_ = true;
    // Written now, because opt exits at the error.
    write_statistics();
    module_.getContext().emitError("policybridge: no decisions: " + why.message());
  } else {
    remark("all decisions are the compiler's own: " + why.message());
  }
}

std::optional<bool> StoreSession::find(const Site &site) const {
  const auto decision = decisions_.inlining.find({site.key, 0});
  return decision == decisions_.inlining.end() ? std::nullopt : std::optional(decision->second);
}

StoreSession::~StoreSession() {
  if (sites_)
    sites_->strip();
  if (passes_)
    report_.applied += report_.passes = passes_->applied();
  tell();
  if (log_)
    write_log();
  write_statistics();
}

/// Says nothing of a file that shares no more than its name with one of the store.
void StoreSession::tell() const {
  if (report_.applied == report_.decisions || (!report_.applied && !is_own_section_))
    return;
  std::string line = file_name(report_.store) + ": " + std::to_string(report_.applied) + " of " +
                     std::to_string(report_.decisions) + " decisions applied to " + report_.module;
  if (!tuned_with_.empty())
    line += "; they were tuned with LLVM " + tuned_with_;
  if (passes_ && passes_->lacks_switches())
    line += "; ThinLTO sets switches by one job alone: -flto-jobs=1";
  remark(line);
}

void StoreSession::write_log() {
  const std::string first_line = "policybridge-sites 1\t" + compiled_.digest + "\t" + compiled_.level + "\t" +
                                 percent_encoded(compiled_.path) + "\t" + std::to_string(report_.applied) + "\t" +
                                 std::to_string(report_.decisions);
  if (Status status = log_->write(file_of(configuration_->settings.sites, name_of(module_)), first_line); !status.ok())
    remark("no log of sites: " + status.message());
}

void StoreSession::write_statistics() {
  CompilationReport report;
  report.statistics.failure = failure_;
  if (!report_.store.empty())
    report.store = report_;
  report.seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
  plugin::write_statistics(configuration_->settings.stats, name_of(module_), "inline", fatal_, std::move(report));
}

} // namespace policybridge::plugin

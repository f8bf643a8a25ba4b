#include "module_session.h"

#include "function_features.h"
#include "module_names.h"
#include "module_stage.h"
#include "pass_choices.h"
#include "telling.h"
#include "utf8.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace policybridge::plugin {

namespace {

using Clock = std::chrono::steady_clock;

/// As `BasicBlock::sizeWithoutDebug` counts them, without its calls for each instruction.
std::uint64_t instructions_of(const Module &module) {
  std::ptrdiff_t count = 0;
  for (const Function &function : module)
    for (const BasicBlock &block : function)
      count += count_if(block, [](const Instruction &each) { return !each.isDebugOrPseudoInst(); });
  return static_cast<std::uint64_t>(count);
}

/// Whether passes run on a function that may be chosen.
bool is_chosen_for(const Function &function) {
  return !function.isDeclaration() && !function.hasAvailableExternallyLinkage() && !function.hasOptNone() &&
         !function.isPresplitCoroutine();
}

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

} // namespace

ModuleSession::ModuleSession(Module &module, ModuleAnalysisManager &analyses,
                             std::shared_ptr<const Configuration> configuration)
    : module_(module), analyses_(analyses), configuration_(std::move(configuration)),
      phase_(phase_of(module, analyses)),
      advisor_(make_advisor(configuration_->settings, name_of(module), scope_labels(module, analyses))),
      begun_(Clock::now()) {
  advisor_->report().statistics.failure = configuration_->invalid.ok() ? check_phase() : configuration_->invalid;
  advisor_->report().instructions_before = instructions_of(module);
  size_ = static_cast<double>(advisor_->report().instructions_before);
  fail_without_default();
}

/// A phase for which no policy is asked is no fault.
Status ModuleSession::check_phase() const {
  if (configuration_->settings.phases.holds(phase_))
    return {};
  return {StatusCode::OutOfRange, "the phase of the compilation is '" + phase_ + "', in which LLVM decides unless " +
                                      "POLICYBRIDGE_PHASES holds it"};
}

/// Whether the settings themselves leave this phase to LLVM, so that there is nothing to tell.
bool ModuleSession::is_idle_by_order() const {
  const Phases &phases = configuration_->settings.phases;
  return phases.is_given && !phases.holds(phase_);
}

bool ModuleSession::has_policy() {
  if (!advisor_->may_decide(inlining))
    return false;
  return configuration_->settings.default_stands_in ? advisor_->is_ready()
                                                    : advisor_->report().statistics.failure.ok();
}

bool ModuleSession::decide(ArrayRef<Feature> features, bool own) {
  const bool inlines = advisor_->decide(features, own);
  fail_without_default();
  return inlines;
}

void ModuleSession::choose_passes() {
  if (!advisor_->may_decide(pass_choice))
    return;
  std::vector<PassChoice> choices;
  for (Function &function : module_)
    if (is_chosen_for(function)) {
      const std::vector<Feature> features = function_features(function);
      if (!advisor_->report().statistics.passes && !advisor_->chooses_passes(features))
        break;
      const std::size_t advice = advisor_->choose_passes(function.getName(), features);
      append_range(choices, pass_alternatives()[advice].of(features.front().words.front()));
    }
  const auto functions = static_cast<std::uint64_t>(count_if(module_, is_chosen_for));
  advisor_->report().statistics.count_outside(pass_choice, functions);
  fail_without_default();
  if (!choices.empty())
    passes_ = std::make_shared<ModulePasses>(std::move(choices), nullptr);
}

std::string ModuleSession::policy_name() {
  const std::optional<PolicyVersion> &policy = advisor_->report().statistics.policy;
  if (!policy)
    return "no policy";
  return "policy " + policy->name + "@" + std::to_string(policy->version) + " (" + policy->digest + ")";
}

void ModuleSession::fail_without_default() {
  ModuleReport &report = advisor_->report();
  const Status &failure = report.statistics.failure;
  // A policy that is not for such a module is no fault: LLVM decides, and it is told.
  if (failure.ok() || failure.code() == StatusCode::OutOfRange || configuration_->settings.default_stands_in || report.fatal)
    return;
  report.fatal = true;
  // Written now, because opt exits at the error.
  statistics_writer()();
  module_.getContext().emitError("policybridge: no advice: " + one_line(failure.message()));
}

ModuleSession::~ModuleSession() {
  ModuleReport &report = advisor_->report();
  const Statistics &statistics = report.statistics;
  report.instructions_after = instructions_of(module_);
  report.seconds = seconds_since(begun_);
  advisor_->finish(statistics_writer());
  if (!statistics.failure.ok() && !report.fatal && !is_idle_by_order())
    tell_defaults(statistics);
  tell_outside(statistics);
  tell_limited(statistics, configuration_->settings.growth_limit, "the module's size");
}

/// What writes the statistics, as they are now but for the counts of records, which the end of the session changes.
std::function<void()> ModuleSession::statistics_writer() const {
  const ModuleReport &report = advisor_->report();
  CompilationReport written;
  written.statistics = report.statistics;
  written.seconds = seconds_since(begun_);
  return [pattern = configuration_->settings.stats, name = name_of(module_), fatal = report.fatal, written] {
    plugin::write_statistics(pattern, name, "inline", fatal, written);
  };
}

} // namespace policybridge::plugin

#include "decided.h"

#include "compiler_cache.h"
#include "decision_store.h"
#include "files.h"
#include "lacking.h"
#include "llvm_version.h"
#include "plugins.h"
#include "process.h"
#include "sha256.h"
#include "sources.h"

#include <cstdlib>

namespace policybridge {

namespace {

void append_to_variable(const char *name, const std::string &files) {
  const std::string before = variable(name);
  setenv(name, (before.empty() ? files : before + ":" + files).c_str(), 1);
}

/// One compilation with the decisions of a store.
class Decided {
public:
  Decided(Config config, const Compiler &compiler, Signals &signals)
      : config_(std::move(config)), compiler_(compiler), signals_(signals) {}

  Result<CompilationReport> run();

private:
  Status check_cache() const;
  Result<CompilationReport> run_without(const Status &why);
  Result<CompilationReport> run_plain_saying(const std::string &why);
  Result<CompilationReport> run_by_sequence(const DecisionStore &store, const DecisionStore::Section &section);
  Status become_with(const std::string &plugin);
  CompiledModule module_by(const char *by) const;
  const DecisionStore::Section *find(const DecisionStore &store, const char *by) const;

  Config config_;
  const Compiler &compiler_;
  Signals &signals_;
  int major_ = 0;
};

/// A cache before this program has made its key of the command line, and of the files that its variable names.
Status Decided::check_cache() const {
  const std::string cache = compiler_cache();
  if (cache.empty() || is_in_key(cache, config_.decisions))
    return {};
  return invalid_argument("under " + cache + " name " + absolute(config_.decisions) + " in " + extra_files_of(cache) +
                          ", because it does not see otherwise when the store changes");
}

Result<CompilationReport> Decided::run() {
  if (Status status = check_cache(); !status.ok()) {
    config_.falls_back = false; // a plain object would be kept as one with the store's decisions
    return run_without(status);
  }
  const Result<DecisionStore> store = DecisionStore::open(config_.decisions);
  if (!store.ok())
    return run_without(store.status());
  if (compiler_.is_thinlto_backend())
    return run_plain_saying("clang runs no plugins with -fthinlto-index");
  const Result<int> major = llvm_version(compiler_.start, signals_);
  if (!major.ok())
    return major.status();
  major_ = *major;
  const Result<std::string> plugin = find_plugin(compiler_, major_, config_.plugins, signals_);
  if (!plugin.ok())
    return plugin.status();
  const DecisionStore::Section *sequence = find(*store, "sequence");
  const DecisionStore::Section *site = find(*store, "site");
  if (!plugin->empty() && (site || !sequence))
    return become_with(*plugin);
  if (sequence)
    return run_by_sequence(*store, *sequence);
  if (const std::string why = site ? "" : store->mismatch(module_by("site")); !why.empty())
    remark(config_.command, file_name(config_.decisions) + " " + why);
  if (site && DecisionStore::is_path_of(*site, module_by("site")))
    return run_plain_saying(file_name(config_.decisions) + " has those of " + site->module.path +
                            lacking(" by site, and there is no plugin that this compiler loads (--plugins)"));
  return run_plain(compiler_, signals_);
}

CompiledModule Decided::module_by(const char *by) const {
  return {std::to_string(major_), compiler_.level(), by, "", source_of(compiler_.arguments)};
}

const DecisionStore::Section *Decided::find(const DecisionStore &store, const char *by) const {
  const CompiledModule module = module_by(by);
  return module.path.empty() ? nullptr : store.find(module);
}

Result<CompilationReport> Decided::run_plain_saying(const std::string &why) {
  Result<CompilationReport> report = run_plain(compiler_, signals_);
  if (report.ok())
    remark(config_.command, "all decisions are the compiler's own: " + why);
  return report;
}

/// Finish after a failure of the store: compile without the store, or report the failure.
Result<CompilationReport> Decided::run_without(const Status &why) {
  if (config_.falls_back) {
    Result<CompilationReport> report = run_plain(compiler_, signals_);
    if (report.ok())
      report->fallback = FallbackReport{why, 0, false};
    return report;
  }
  CompilationReport report;
  report.status = failed_status;
  report.error = why;
  return report;
}

/// Returns only if the compiler cannot be started. If the command runs no other tool, the settings are options, because
/// a compiler cache compares options and not variables. Else they are variables, and the cache is left out.
Status Decided::become_with(const std::string &plugin) {
  Compiler compiler = compiler_;
  const std::string store = absolute(config_.decisions);
  const bool under_sccache =
      compiler.start.size() > 1 && file_name(compiler.start[compiler.start.size() - 2]) == "sccache";
  Strings options;
  std::string dependency;
  if (compiler_.only_compiles()) {
    options.push_back("-policybridge-decisions=" + store);
    // Given, so that the plugin does not say for each file that LLVM decides before linking.
    if (variable("POLICYBRIDGE_PHASES").empty())
      options.emplace_back("-policybridge-phases=compile,link");
    options.push_back("-policybridge-growth-limit=" + general(config_.growth_limit));
    if (!config_.falls_back)
      options.emplace_back("-policybridge-fallback=error");
    // A cache that hashes the preprocessed text takes equal sources for one; their decisions may differ. By a digest,
    // because buildcache leaves out all words that end as a source does.
    if (const std::string source = source_of(compiler.arguments); !source.empty())
      options.push_back("-policybridge-label=source=" + sha256(absolute(source)).substr(0, 16));
    for (const char *name : extra_files_variables)
      append_to_variable(name, plugin + ":" + store);
    // A build compiles again what depends on a changed store. sccache would not cache the command.
    if (!under_sccache)
      dependency = store;
  } else {
    setenv("POLICYBRIDGE_DECISIONS", store.c_str(), 1);
    setenv("POLICYBRIDGE_GROWTH_LIMIT", general(config_.growth_limit).c_str(), 1);
    setenv("POLICYBRIDGE_FALLBACK", config_.falls_back ? "default" : "error", 1);
    setenv("CCACHE_DISABLE", "1", 1);
    // This cache cannot be switched off by a variable.
    if (under_sccache)
      compiler.start = {compiler.start.back()};
  }
  if (!config_.stats.empty())
    setenv("POLICYBRIDGE_STATS", config_.stats.c_str(), 1);
  signals_.restore();
  return become(compiler.with_plugin(plugin, options, major_ < first_major_that_reads_late, dependency));
}

Result<CompilationReport> Decided::run_by_sequence(const DecisionStore &store, const DecisionStore::Section &section) {
  Result<SectionDecisions> decisions = store.read(section);
  if (!decisions.ok())
    return run_without(decisions.status());
  if (!Defaults::of(compiler_, *config_.task, major_).known())
    return run_plain_saying(
        lacking("this LLVM tells its own decisions at -Oz only, and there is no plugin for it (--plugins)"));
  StoredDecisions stored{std::move(decisions->inlining), major_};
  Result<CompilationReport> report = run_compiler(config_, compiler_, signals_, &stored);
  if (!report.ok())
    return report;
  const CompiledModule module = module_by("sequence");
  const std::size_t count = stored.decisions.size();
  report->store = StoreReport{config_.decisions, module.path, false, count, stored.applied};
  if (stored.applied != count && (stored.applied || DecisionStore::is_path_of(section, module)))
    remark(config_.command, file_name(config_.decisions) + ": " + std::to_string(stored.applied) + " of " +
                                std::to_string(count) + " decisions applied to " + module.path);
  return report;
}

} // namespace

Result<CompilationReport> run_decided(Config config, const Compiler &compiler, Signals &signals) {
  return Decided(std::move(config), compiler, signals).run();
}

} // namespace policybridge

#include "settings.h"

#include "advisor.h"
#include "cache_key.h"
#include "compiler_cache.h"
#include "early.h"
#include "host_version.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"

#include <limits>
#include <memory>
#include <vector>

using namespace llvm;

namespace policybridge::plugin {
namespace {

using Text = cl::opt<std::string>;
using Texts = cl::list<std::string>;

/// LLVM's command line for the plugin.
struct Options {
  cl::OptionCategory category{"PolicyBridge"};
  Text server{"policybridge-server", cl::cat(category), cl::value_desc("socket:PATH"),
              cl::desc("Where the policy server listens")};
  Text policy{"policybridge-policy", cl::cat(category), cl::value_desc("name[@version|@alias]"),
              cl::desc("The policy that decides")};
  Text timeout{"policybridge-timeout", cl::cat(category), cl::value_desc("seconds"),
               cl::desc("For each wait for the server (default: 10)")};
  Text stats{"policybridge-stats", cl::cat(category), cl::value_desc("file.json"),
             cl::desc("Write counts and latencies there; %p becomes the process id, %m the module")};
  Text fallback{"policybridge-fallback", cl::cat(category), cl::value_desc("default|error"),
                cl::desc("Without advice: LLVM's own decisions (default), or an error")};
  Text growth_limit{"policybridge-growth-limit", cl::cat(category), cl::value_desc("factor"),
                    cl::desc("The factor of a module's size that the policy may add to it (default: 4)")};
  Text retry_after{"policybridge-retry-after", cl::cat(category), cl::value_desc("seconds"),
                   cl::desc("How long others need not wait for a server that did not answer in time (default: 60)")};
  Text decides{"policybridge-decides", cl::cat(category), cl::value_desc("kind,..."),
               cl::desc("The kinds of decisions to ask for (default: those that the policy declares)")};
  Text decisions{"policybridge-decisions", cl::cat(category), cl::value_desc("tuned.db"),
                 cl::desc("A store of tuned decisions; no server is asked")};
  cl::opt<bool> no_decisions{"policybridge-no-decisions", cl::cat(category),
                             cl::desc("Look for no store named policybridge.decisions")};
  Text sites{"policybridge-sites", cl::cat(category), cl::value_desc("file"),
             cl::desc("Log every call that LLVM asks about there; %p and %m as in the statistics")};
  Text passes{"policybridge-passes", cl::cat(category), cl::value_desc("file"),
              cl::desc("Log every optional pass that LLVM asks about there; %p and %m as in the statistics")};
  Text phases{"policybridge-phases", cl::cat(category), cl::value_desc("phase,..."),
              cl::desc("Where to decide: compile, pre-link, link (default: compile,link)")};
  Text module{"policybridge-module", cl::cat(category), cl::value_desc("path"),
              cl::desc("The name of this module in the store (default: its source file)")};
  Texts options{"policybridge-option", cl::cat(category), cl::value_desc("name=value"),
                cl::desc("For the policy to read")};
  Texts labels{"policybridge-label", cl::cat(category), cl::value_desc("name=value"),
               cl::desc("To find the session by")};
  Text evaluate{"policybridge-evaluate", cl::cat(category), cl::value_desc("there|auto|here"),
                cl::desc("Where decisions are made: by the server (there), or in the compiler by the policy's portable "
                         "form (here; auto, the default: if it has one)")};
  Text spool{"policybridge-spool", cl::cat(category), cl::value_desc("0|1"),
             cl::desc("Whether to keep on disk what was decided here and a server that went away has not recorded "
                      "(default: 1)")};
  Text explore{"policybridge-explore", cl::cat(category), cl::value_desc("temperature=T,epsilon=E,seed=S"),
               cl::desc("Depart from the policy's best advice, for training")};
};

/// Made while the plugin is loaded, because clang reads its command line before it asks for the plugin's passes. None
/// in an LLVM of another major, where making them could crash.
const Options *const made = is_right_host("policybridge-inliner") ? new Options : nullptr;

/// LLVM has not read its command line yet, so this goes by the words of the process. It saves the time of reading the source.
[[maybe_unused]] const bool has_begun = made && begin_early();

/// LLVM's command line, which it has parsed.
class CommandLine final : public SettingsSource {
public:
  std::optional<std::string> written(std::string_view name) const override {
    for (const Text *option : texts)
      if (is_called(*option, name) && option->getNumOccurrences())
        return std::string(*option);
    return std::nullopt;
  }

  std::vector<std::string> all_written(std::string_view name) const override {
    // cl::list has an operator & of its own.
    for (const Texts *list : {std::addressof(made->options), std::addressof(made->labels)})
      if (is_called(*list, name))
        return {list->begin(), list->end()};
    return {};
  }

  std::string spelled(std::string_view name) const override { return "-policybridge-" + std::string(name); }

private:
  static bool is_called(const cl::Option &option, std::string_view name) {
    return option.ArgStr == "policybridge-" + std::string(name);
  }

  const std::vector<const Text *> texts = {&made->server,       &made->policy,     &made->timeout, &made->stats,
                                           &made->fallback,     &made->growth_limit, &made->retry_after,
                                           &made->decides,      &made->decisions,    &made->sites,   &made->passes,
                                           &made->phases,       &made->module,       &made->explore, &made->evaluate,
                                           &made->spool};
};

/// Check a store under a compiler cache; the command line does not have its content.
Status check_cached_store(const SettingsSource &source, const std::string &cache, const std::string &store) {
  for (const std::string_view name : {"decisions", "module", "phases"})
    if (!source.written(name) && environment(variable_of(name)))
      return refused_under(cache, "give -mllvm " + source.spelled(name) + " and not " + variable_of(name) +
                                      ", because it keeps the object by the command line alone");
  if (store.empty())
    return {};
  return check_in_key(cache, store, "the store changes");
}

} // namespace

bool has_options() { return made; }

bool may_take(std::string_view) { return true; }

const char *plugin_version() { return LLVM_VERSION_STRING; }

Status Settings::read() {
  Status status = read_all();
  early = early_connection(status.ok() && !is_local() ? this : nullptr);
  return status;
}

Status Settings::read_all() {
  const CommandLine source;
  stats = source.value("stats");
  decisions = source.value("decisions");
  sites = source.value("sites");
  passes = source.value("passes");
  if (Status status = source.read_fallback(default_stands_in); !status.ok())
    return status;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (Status status = source.read_number("growth-limit", "", 0, infinity, growth_limit); !status.ok())
    return status;
  if (Status status = read_phases(source); !status.ok())
    return status;
  const auto is_unset = [&source](const char *name) { return source.value(name).empty(); };
  is_plain = !is_local() && is_unset("server") && is_unset("policy");
  if (is_plain)
    return read_plain(source);
  if (is_local())
    return read_local(source);
  if (Status status = check_cached(source, {"growth-limit", "decides", "phases"}, "-mllvm "); !status.ok())
    return status;
  if (Status status = read_decides(source); !status.ok())
    return status;
  return read_server(source);
}

Status Settings::read_phases(const SettingsSource &source) {
  Result<Phases> read = Phases::parse(source.value("phases"));
  if (!read.ok())
    return source.invalid("phases", read.status().message());
  phases = *std::move(read);
  return {};
}

Status Settings::read_decides(const SettingsSource &source) {
  const std::string text = source.value("decides");
  SmallVector<StringRef> kinds;
  StringRef(text).split(kinds, ',', -1, false);
  for (const StringRef kind : kinds) {
    if (kind != inlining && kind != pass_choice)
      return source.invalid("decides", "is " + std::string(inlining) + ", " + pass_choice + " or both with a comma, not '" +
                                           text + "'");
    decides.push_back(kind.str());
  }
  return {};
}

Status Settings::read_plain(const SettingsSource &source) {
  const std::string variable = variable_of("no-decisions");
  const bool is_off = !environment(variable).value_or("").empty();
  finds_store = !is_off && !made->no_decisions;
  if (const std::string cache = compiler_cache(); is_off && !made->no_decisions && !cache.empty()) {
    // An object without the store's decisions would be kept as one with them.
    default_stands_in = false;
    return refused_under(cache, "give -mllvm -policybridge-no-decisions and not " + variable +
                                    ", because it keeps the object by the command line alone");
  }
  return finds_store ? read_local(source) : Status();
}

Status Settings::read_local(const SettingsSource &source) {
  module = source.value("module");
  const std::string cache = compiler_cache();
  if (cache.empty())
    return {};
  Status status = check_cached_store(source, cache, decisions);
  // An object without the store's decisions would be kept as one with them.
  default_stands_in = default_stands_in && status.ok();
  return status;
}

} // namespace policybridge::plugin

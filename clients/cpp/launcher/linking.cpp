#include "linking.h"

#include "decision_store.h"
#include "files.h"
#include "lacking.h"
#include "linker.h"
#include "llvm_version.h"
#include "plugins.h"
#include "process.h"
#include "response_files.h"
#include "sha256.h"
#include "sources.h"
#include "words.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

namespace policybridge {

namespace {

constexpr std::string_view without_linker[] = {"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "-###", "-cc1",
                                               "-emit-llvm", "--version", "--help", "--precompile"};

std::string joined(const std::map<std::string, std::string> &pairs) {
  std::string text;
  for (const auto &[name, value] : pairs)
    text += (text.empty() ? "" : ",") + name + "=" + value;
  return text;
}

/// The settings of the plugin, which LLD knows by variables alone.
Variables settings_of(const Config &config) {
  Variables settings = {{"POLICYBRIDGE_GROWTH_LIMIT", general(config.growth_limit)},
                        {"POLICYBRIDGE_FALLBACK", config.falls_back ? "default" : "error"}};
  if (variable("POLICYBRIDGE_PHASES").empty())
    settings.emplace_back("POLICYBRIDGE_PHASES", "compile,link");
  if (!config.stats.empty())
    settings.emplace_back("POLICYBRIDGE_STATS", config.stats);
  if (!config.decisions.empty()) {
    settings.emplace_back("POLICYBRIDGE_DECISIONS", absolute(config.decisions));
    return settings;
  }
  settings.emplace_back("POLICYBRIDGE_SERVER", config.server);
  settings.emplace_back("POLICYBRIDGE_POLICY", config.policy_text);
  settings.emplace_back("POLICYBRIDGE_RETRY_AFTER", general(config.retry_after));
  settings.emplace_back("POLICYBRIDGE_TIMEOUT", general(std::chrono::duration<double>(config.timeout).count()));
  settings.emplace_back("POLICYBRIDGE_LABELS", joined(config.labels));
  settings.emplace_back("POLICYBRIDGE_OPTIONS", joined(config.options));
  return settings;
}

/// Whether a linker makes the same program of the same objects, as long as settings, plugin and store are the same.
bool is_reproducible(const Config &config) {
  return !config.decisions.empty() || (!config.falls_back && config.policy_text.find("@sha256:") != std::string::npos);
}

/// The digests of a response file and of those that it names, each once; empty if `word` names none.
std::string response_digests(const std::string &word, std::set<std::string> &seen) {
  if (!starts_with(word, "@") || !is_file(word.substr(1)) || !seen.insert(word).second)
    return "";
  const Result<std::string> content = read_file(word.substr(1));
  if (!content.ok())
    return "";
  std::string all = sha256(*content) + "\n", named;
  for (std::istringstream words(*content); words >> named;)
    all += response_digests(named, seen);
  return all;
}

/// Options that keep ThinLTO's cache right. LLD's key has its options for LLVM and not the plugin. So one that has no
/// effect, because nothing is printed, holds the digest of all that changes the objects.
Strings cache_options(const Config &config, const Compiler &compiler, const std::string &plugin,
                      const Variables &settings) {
  if (!is_reproducible(config))
    return {"-Wl,--thinlto-cache-dir="};
  std::string all;
  for (const auto &[name, value] : settings)
    all += name + "=" + value + "\n";
  for (const std::string &file : {plugin, config.decisions})
    if (const Result<std::string> content = file.empty() ? Result<std::string>("") : read_file(file); content.ok())
      all += sha256(*content) + "\n";
  all += variable("POLICYBRIDGE_PHASES");
  // With one job the plugin sets switches. A response file may say so, too.
  std::set<std::string> seen;
  for (const std::string &word : compiler.arguments) {
    if (word.find("jobs=") != std::string::npos)
      all += word + "\n";
    all += response_digests(word, seen);
  }
  return {"-Wl,-mllvm,-filter-print-funcs=policybridge." + sha256(all).substr(0, 32)};
}

/// rustc links its modules (`-C linker-plugin-lto`) without `-flto`, and gives their settings to the linker itself.
bool says_lto(const std::string &word) {
  return word == "-flto" || starts_with(word, "-flto=") || word == "-fno-lto" || starts_with(word, "-Wl,-plugin-opt=");
}

bool is_bitcode(const std::string &path) {
  if (!is_file(path))
    return false;
  char start[4] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof start);
  return std::string_view(start, sizeof start) == "BC\xC0\xDE";
}

/// Whether an input of the linker is bitcode, which LLD optimises without `-flto`, too.
bool has_bitcode(const Strings &words) {
  const Strings sources = sources_of(words);
  return std::any_of(words.begin(), words.end(), [&](const std::string &word) {
    return !starts_with(word, "-") && !holds(sources, word) && is_bitcode(word);
  });
}

bool has_cache(const Compiler &compiler) {
  const Strings words = expanded(compiler.arguments);
  return std::any_of(words.begin(), words.end(), [](const std::string &word) {
    return word.find("thinlto-cache-dir") != std::string::npos;
  });
}

/// Why nothing is decided at link time; empty if there is something to decide.
std::string reason_not_to(const Config &config) {
  const std::string phases = variable("POLICYBRIDGE_PHASES");
  if (!phases.empty() && (',' + phases + ',').find(",link,") == std::string::npos)
    return "POLICYBRIDGE_PHASES is " + phases;
  if (config.decisions.empty()) {
    for (const auto *pairs : {&config.labels, &config.options})
      for (const auto &[name, value] : *pairs)
        if ((name + value).find(',') != std::string::npos)
          return "LLD's plugin takes labels and options in a list with commas, and " + name + " has a comma itself";
    return "";
  }
  const Result<DecisionStore> store = DecisionStore::open(config.decisions);
  if (!store.ok())
    return store.status().message();
  const auto &sections = store->sections();
  const bool has_any = std::any_of(sections.begin(), sections.end(), [](const auto &each) { return each.module.at_link; });
  return has_any ? "" : file_name(config.decisions) + " has no section with phase=link";
}

/// Why a linker does not load the plugin of this LLVM.
std::string of_another_llvm(int major) {
  const std::string lld = std::to_string(major);
  return "the linker loads no plugins of LLVM " + lld + "; LLD " + lld + " does (--ld-path=ld.lld-" + lld + ")";
}

} // namespace

bool links_with_lto(const Compiler &compiler) {
  if (compiler.kind != CompilerKind::Clang)
    return false;
  const Strings words = expanded(compiler.arguments);
  if (std::any_of(words.begin(), words.end(), [](const std::string &word) { return holds(without_linker, word); }))
    return false;
  const auto lto = std::find_if(words.rbegin(), words.rend(), says_lto);
  if (lto == words.rend() || *lto == "-fno-lto")
    return has_bitcode(words);
  return std::any_of(words.begin(), words.end(), [](const std::string &word) { return !starts_with(word, "-"); });
}

Status become_linking(const Config &config, const Compiler &compiler, Signals &signals) {
  std::string why = reason_not_to(config);
  std::string plugin;
  if (why.empty()) {
    const Result<int> major = llvm_version(compiler.start, signals);
    if (!major.ok())
      return major.status();
    Result<std::string> found = find_plugin(compiler, *major, config.plugins, signals);
    if (!found.ok())
      return found.status();
    plugin = *std::move(found);
    const Result<bool> loads = plugin.empty() ? Result<bool>(false) : linker_loads(compiler, plugin, signals);
    if (!loads.ok())
      return loads.status();
    if (!*loads)
      why = plugin.empty() ? lacking("there is no plugin that this compiler loads") : of_another_llvm(*major);
  }
  Strings words = compiler.start;
  if (why.empty()) {
    const Variables settings = settings_of(config);
    for (const auto &[name, value] : settings)
      setenv(name.c_str(), value.c_str(), 1);
    setenv("CCACHE_DISABLE", "1", 1);
    words.insert(words.end(), compiler.arguments.begin(), compiler.arguments.end());
    words.push_back("-Wl,--load-pass-plugin=" + plugin);
    // Last, because the last of several folders counts.
    const Strings options = cache_options(config, compiler, plugin, settings);
    words.insert(words.end(), options.begin(), options.end());
    if (has_cache(compiler) && !is_reproducible(config))
      remark(config.command, "ThinLTO's cache is not used: it could keep another policy's objects; name the version by "
                             "its digest, with --fallback error");
  } else {
    words.insert(words.end(), compiler.arguments.begin(), compiler.arguments.end());
    remark(config.command, "all decisions at link time are the compiler's own: " + why);
  }
  signals.restore();
  return become(words);
}

} // namespace policybridge

#include "plugins.h"

#include "files.h"
#include "llvm_version.h"
#include "process.h"
#include "trusted.h"
#include "words.h"

#include <algorithm>
#include <fcntl.h>
#include <iterator>

namespace policybridge {

namespace {

constexpr int timeout_milliseconds = 30000;
constexpr int loads = 1, loads_not = 2;

void add_libraries(const std::string &prefix, Strings &folders) {
  for (const char *pattern : {"/lib/policybridge", "/lib64/policybridge", "/lib/*-linux-gnu*/policybridge"})
    for (const std::string &folder : matches_of(prefix + pattern))
      folders.push_back(folder);
}

Strings folders_of(const std::string &given) {
  Strings folders;
  if (!given.empty())
    folders.push_back(given);
  for (const std::string &named : split_at_colons(variable("POLICYBRIDGE_PLUGINS")))
    if (!named.empty())
      folders.push_back(named);
  const std::string prefix = folder_of(folder_of(real_path("/proc/self/exe")));
  Strings beside;
  add_libraries(prefix, beside);
  beside.push_back(prefix + "/lib"); // as CMake builds
  std::copy_if(beside.begin(), beside.end(), std::back_inserter(folders), is_trusted);
  folders.emplace_back(POLICYBRIDGE_INSTALLED_PLUGINS);
  for (const char *usual : {"/usr/local", "/usr"})
    add_libraries(usual, folders);
  return folders;
}

/// Compile nothing with the plugin, at a level at which it has nothing to do.
Result<int> try_plugin(const Compiler &compiler, const std::string &plugin, Signals &signals) {
  Compiler trial{compiler.kind, {compiler.start.back()}, {"-O0", "-c", "-o", "/dev/null", "-x", "c", "/dev/null"}};
  if (compiler.kind == CompilerKind::Opt)
    trial.arguments = {"-passes=no-op-module", "-disable-output", "/dev/null"};
  const Descriptor nowhere(open("/dev/null", O_WRONLY | O_CLOEXEC));
  ProcessOptions options;
  options.variables = {{"CCACHE_DISABLE", "1"}};
  options.output = nowhere.get();
  Result<Process> process = Process::start(trial.with_plugin(plugin, {}, true), signals, options);
  if (!process.ok())
    return loads_not;
  if (Status status = process->await(signals, timeout_milliseconds); !status.ok())
    return status;
  return process->reap() == 0 ? loads : loads_not;
}

} // namespace

Result<std::string> find_plugin(const Compiler &compiler, int major, const std::string &folder, Signals &signals) {
  if (!major || (compiler.kind != CompilerKind::Clang && compiler.kind != CompilerKind::Opt))
    return std::string();
  for (const std::string &place : folders_of(folder)) {
    const std::string plugin = real_path(place + "/policybridge-inliner-" + std::to_string(major) + ".so");
    if (!is_file(plugin))
      continue;
    const std::string question = " loads " + identity_of(plugin) + " native";
    const Result<int> answer =
        remembered(compiler.start, question, [&] { return try_plugin(compiler, plugin, signals); });
    if (!answer.ok())
      return answer.status();
    if (*answer == loads)
      return plugin;
  }
  return std::string();
}

} // namespace policybridge

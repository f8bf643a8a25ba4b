#include "linker.h"

#include "files.h"
#include "llvm_version.h"
#include "process.h"
#include "response_files.h"
#include "words.h"

#include <algorithm>
#include <fcntl.h>
#include <fstream>

namespace policybridge {

namespace {

constexpr int linker_milliseconds = 60000;
constexpr int not_tried = 0, plugin_loads = 1, plugin_fails = 2;
constexpr int first_signal_status = 128;

constexpr std::string_view choosing_options[] = {"-fuse-ld=", "--ld-path=", "-B", "--target=", "-target", "--config",
                                                 "--no-default-config"};
constexpr std::string_view with_next_word[] = {"-B", "-target", "--config"};

bool chooses_linker(const std::string &word) {
  return std::any_of(std::begin(choosing_options), std::end(choosing_options),
                     [&](std::string_view option) { return starts_with(word, option); });
}

/// The compiler, with the command's options that choose the linker.
Strings choosing(const Compiler &compiler) {
  Strings words = {compiler.start.back()};
  bool is_value = false;
  for (const std::string &word : expanded(compiler.arguments)) {
    const bool is_wanted = is_value || chooses_linker(word);
    is_value = !is_value && holds(with_next_word, word);
    if (is_wanted)
      words.push_back(word);
  }
  return words;
}

bool is_script(const std::string &path) {
  char start[4] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof start);
  return std::string_view(start, sizeof start) != "\177ELF";
}

/// The first word in quotes of a dry run: clang's search for the linker depends on options, variables, its own build and
/// its configuration files. Empty for none.
Result<std::string> find_linker(Strings words, Signals &signals) {
  for (const char *word : {"-nostdlib", "-shared", "-###", "/dev/null"})
    words.emplace_back(word);
  const Result<std::string> told = output_of(words, signals, linker_milliseconds, true);
  if (!told.ok())
    return signals.received() ? told : Result<std::string>(std::string());
  constexpr std::string_view before = "\n \"";
  const std::size_t found = told->find(before);
  if (found == std::string::npos)
    return std::string();
  const std::size_t start = found + before.size();
  return real_path(told->substr(start, told->find('"', start) - start));
}

/// Link an empty module with the plugin.
Result<int> try_linker(Strings words, const std::string &plugin, Signals &signals) {
  for (const char *word : {"-flto", "-O1", "-w", "-nostdlib", "-shared", "-fPIC"})
    words.emplace_back(word);
  words.push_back("-Wl,--load-pass-plugin=" + plugin);
  for (const char *word : {"-x", "c", "/dev/null", "-o", "/dev/null"})
    words.emplace_back(word);
  const Descriptor nowhere(open("/dev/null", O_WRONLY | O_CLOEXEC));
  ProcessOptions options;
  options.variables = {{"CCACHE_DISABLE", "1"}};
  options.output = nowhere.get();
  Result<Process> process = Process::start(words, signals, options);
  if (!process.ok())
    return not_tried;
  if (Status status = process->await(signals, linker_milliseconds); !status.ok())
    return status;
  const int status = process->reap();
  return status == 0 ? plugin_loads : status < first_signal_status ? plugin_fails : not_tried;
}

} // namespace

Result<bool> linker_loads(const Compiler &compiler, const std::string &plugin, Signals &signals) {
  const Strings words = choosing(compiler);
  const Result<std::string> linker = find_linker(words, signals);
  if (!linker.ok())
    return linker.status();
  const auto ask = [&] { return try_linker(words, plugin, signals); };
  std::string question = " links by " + identity_of(*linker) + " with " + identity_of(plugin);
  for (const std::string &word : words)
    question += " " + word;
  const Result<int> answer =
      linker->empty() || is_script(*linker) ? ask() : remembered(compiler.start, question, ask);
  if (!answer.ok())
    return answer.status();
  return *answer == plugin_loads;
}

} // namespace policybridge

#include "advisor_flags.h"

#include "arguments.h"
#include "files.h"
#include "sources.h"
#include "words.h"

#include <algorithm>
#include <string_view>

namespace policybridge {

namespace {

using View = std::string_view;

constexpr View compiles_nothing[] = {"-E",   "-M",     "-MM",       "-fsyntax-only", "-###",
                                     "-cc1", "-cc1as", "--version", "--help",        "-help"};

// For LLVM's own tools only: to clang, -h is an option with a value.
constexpr View only_prints[] = {"--version", "-version", "--help", "-help", "-h"};

constexpr View not_compiled[] = {"o", "obj", "a", "so", "lo", "la", "s", "S", "asm", "ld"};

bool is_not_compiled(View input) {
  const std::string name = file_name(input);
  const std::size_t dot = name.rfind('.');
  return (dot != std::string::npos && holds(not_compiled, View(name).substr(dot + 1))) ||
         name.find(".so.") != std::string::npos;
}

/// The actions that a driver's arguments cause.
struct DriverActions {
  bool compiles = true;
  bool has_source = false;
  bool optimises = false;
};

class DriverArguments {
public:
  explicit DriverArguments(const Strings &words) : words_(words) {}

  DriverActions read() {
    for (; place_ < words_.size(); ++place_)
      word(words_[place_]);
    return actions_;
  }

private:
  void word(View word) {
    if (inputs_only_ || word.empty() || word.front() != '-' || word == "-")
      input(word);
    else if (word == "--")
      inputs_only_ = true;
    else if (takes_value(word) && place_ + 1 < words_.size())
      with_value(word, words_[++place_]);
    else if (holds(compiles_nothing, word))
      actions_.compiles = false;
    else
      option(word);
  }

  void input(View word) {
    // The contents of a response file are not read; it may name a source and a level.
    if (starts_with(word, "@"))
      actions_.has_source = actions_.optimises = true;
    else if (!language_.empty() ? !starts_with(language_, "assembler") : !is_not_compiled(word))
      actions_.has_source = true;
  }

  void with_value(View word, View value) {
    if (word == "-x")
      language_ = value == "none" ? View() : value;
    // Options of LLVM and of clang's cc1 may make it optimise at any level.
    if (word == "-mllvm" || (word == "-Xclang" && starts_with(value, "-O")))
      forced_ = actions_.optimises = true;
  }

  void option(View word) {
    if (starts_with(word, "-x"))
      language_ = word.substr(2) == "none" ? View() : word.substr(2);
    if (starts_with(word, "-O"))
      actions_.optimises = forced_ || word != "-O0";
    if (starts_with(word, "--optimize") || starts_with(word, "--config"))
      forced_ = actions_.optimises = true;
  }

  const Strings &words_;
  std::size_t place_ = 0;
  DriverActions actions_;
  View language_;
  bool inputs_only_ = false;
  bool forced_ = false;
};

bool driver_may_request_advice(const Strings &arguments) {
  const DriverActions actions = DriverArguments(arguments).read();
  // CCC_OVERRIDE_OPTIONS changes clang's options after the launcher has read them.
  return actions.compiles && actions.has_source && (actions.optimises || !variable("CCC_OVERRIDE_OPTIONS").empty());
}

} // namespace

bool may_request_advice(const Compiler &compiler) {
  if (compiler.kind == CompilerKind::Clang || compiler.kind == CompilerKind::Zig)
    return driver_may_request_advice(compiler.arguments);
  return std::none_of(compiler.arguments.begin(), compiler.arguments.end(),
                      [](const std::string &word) { return holds(only_prints, word); });
}

Strings advisor_flags(const Task &task, const std::string &base, double growth_limit, const Defaults &defaults) {
  Strings flags = {std::string(task.advisor_flag), std::string(task.channel_flag) + base};
  if (is_inline(task))
    // LLVM's own limit does not go back to LLVM's own decisions, but inlines no more. So it serves only where those are
    // not known; elsewhere `Growth` limits.
    flags.push_back("-ml-advisor-size-increase-threshold=" + (defaults.known() ? "inf" : general(growth_limit)));
  if (defaults.flag())
    flags.emplace_back(defaults.flag());
  return flags;
}

Variables advisor_environment(CompilerKind kind, const std::string &folder) {
  // A cache that does not know the policy must neither provide nor keep an object that a policy has decided about.
  Variables variables = {{"CCACHE_DISABLE", "1"}};
  if (kind == CompilerKind::Zig)
    variables.emplace_back("ZIG_LOCAL_CACHE_DIR", folder + "/zig");
  return variables;
}

} // namespace policybridge

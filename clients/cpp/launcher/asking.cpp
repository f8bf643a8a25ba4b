#include "asking.h"

#include "files.h"
#include "statistics.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace policybridge {

namespace {

using View = std::string_view;

template <std::size_t Size> bool is_one_of(View word, const std::array<View, Size> &known) {
  return std::find(known.begin(), known.end(), word) != known.end();
}

bool starts_with(View word, View beginning) { return word.substr(0, beginning.size()) == beginning; }

// Options whose value is the next word. One that is missing here makes its value look like an input, which asks.
constexpr std::array<View, 39> takes_value = {
    "-o", "-x", "-I", "-L", "-D", "-U", "-l", "-T", "-u", "-z", "-e", "-F", "-B", "-MF", "-MT", "-MQ", "-MJ",
    "-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-isysroot", "-iprefix", "-include-pch", "-target",
    "-arch", "-framework", "-rpath", "-soname", "-Xclang", "-Xlinker", "-Xassembler", "-Xpreprocessor", "-mllvm",
    "-mthread-model", "-serialize-diagnostics", "--param", "--sysroot"};

constexpr std::array<View, 10> compiles_nothing = {
    "-E", "-M", "-MM", "-fsyntax-only", "-###", "-cc1", "-cc1as", "--version", "--help", "-help"};

// Only LLVM's own tools: where -h would be an option with a value for clang.
constexpr std::array<View, 5> tells = {
    "--version", "-version", "--help", "-help", "-h"};

constexpr std::array<View, 10> not_compiled = {
    "o", "obj", "a", "so", "lo", "la", "s", "S", "asm", "ld"};

bool is_not_compiled(View input) {
  const std::string name = file_name(input);
  const std::size_t dot = name.rfind('.');
  return (dot != std::string::npos && is_one_of(View(name).substr(dot + 1), not_compiled)) ||
         name.find(".so.") != std::string::npos;
}

/// What a driver's words come to.
struct Driven {
  bool compiles = true;
  bool has_source = false;
  bool optimises = false;
};

class DriverWords {
public:
  explicit DriverWords(const Words &words) : words_(words) {}

  Driven read() {
    for (; place_ < words_.size(); ++place_)
      word(words_[place_]);
    return driven_;
  }

private:
  void word(View word) {
    if (inputs_only_ || word.empty() || word.front() != '-' || word == "-")
      input(word);
    else if (word == "--")
      inputs_only_ = true;
    else if (is_one_of(word, takes_value) && place_ + 1 < words_.size())
      with_value(word, words_[++place_]);
    else if (is_one_of(word, compiles_nothing))
      driven_.compiles = false;
    else
      option(word);
  }

  void input(View word) {
    // What a response file says is not known here.
    if (starts_with(word, "@"))
      driven_.has_source = driven_.optimises = true;
    else if (!language_.empty() ? !starts_with(language_, "assembler") : !is_not_compiled(word))
      driven_.has_source = true;
  }

  void with_value(View word, View value) {
    if (word == "-x")
      language_ = value == "none" ? View() : value;
    // LLVM's own options, and the compiler's inner ones, may make it optimise whatever the level is.
    if (word == "-mllvm" || (word == "-Xclang" && starts_with(value, "-O")))
      forced_ = driven_.optimises = true;
  }

  void option(View word) {
    if (starts_with(word, "-x"))
      language_ = word.substr(2) == "none" ? View() : word.substr(2);
    if (starts_with(word, "-O"))
      driven_.optimises = forced_ || word != "-O0";
    if (starts_with(word, "--optimize") || starts_with(word, "--config"))
      forced_ = driven_.optimises = true;
  }

  const Words &words_;
  std::size_t place_ = 0;
  Driven driven_;
  View language_;
  bool inputs_only_ = false;
  bool forced_ = false;
};

bool driver_may_ask(const Words &arguments) {
  const Driven driven = DriverWords(arguments).read();
  // CCC_OVERRIDE_OPTIONS changes clang's options behind our back.
  return driven.compiles && driven.has_source && (driven.optimises || !variable("CCC_OVERRIDE_OPTIONS").empty());
}

} // namespace

bool may_ask(const Compiler &compiler) {
  if (compiler.kind == Kind::Clang || compiler.kind == Kind::Zig)
    return driver_may_ask(compiler.arguments);
  return std::none_of(compiler.arguments.begin(), compiler.arguments.end(),
                      [](const std::string &word) { return is_one_of(View(word), tells); });
}

Words asking_flags(const Task &task, const std::string &base, double growth_limit, const Defaults &defaults) {
  Words flags = {std::string(task.advisor), std::string(task.channel) + base};
  if (is_inline(task))
    flags.push_back("-ml-advisor-size-increase-threshold=" + general(growth_limit));
  if (defaults.flag())
    flags.emplace_back(defaults.flag());
  return flags;
}

Variables asking_variables(Kind kind, const std::string &folder) {
  // An object made under a policy must neither come from a cache nor stay in one that does not know the policy.
  Variables variables = {{"CCACHE_DISABLE", "1"}};
  if (kind == Kind::Zig)
    variables.emplace_back("ZIG_LOCAL_CACHE_DIR", folder + "/zig");
  return variables;
}

} // namespace policybridge

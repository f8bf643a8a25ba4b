#include "sources.h"

#include "files.h"
#include "source_language.h"
#include "words.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace policybridge {

namespace {

constexpr std::string_view suffixes[] = {
    ".c", ".cc", ".cp", ".cpp", ".cxx", ".c++", ".C", ".CC", ".CPP", ".CXX", ".ccm", ".cppm", ".cxxm", ".c++m", ".ixx",
    ".i", ".ii", ".iim", ".mi", ".mii", ".m", ".mm", ".M", ".f", ".f90", ".cu", ".hip", ".cl", ".ll", ".bc"};

constexpr std::string_view with_value[] = {
    "-o", "--o", "-x", "-I", "-L", "-D", "-U", "-l", "-T", "-u", "-z", "-e", "-F", "-B",
    "-MF", "-MT", "-MQ", "-MJ", "-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-isysroot", "-iprefix",
    "-include-pch", "-target", "-arch", "-framework", "-rpath", "-soname", "-dumpdir", "-Xclang", "-Xlinker",
    "-Xassembler", "-Xpreprocessor", "-mllvm", "-mthread-model", "-serialize-diagnostics", "--serialize-diagnostics",
    "--param", "--sysroot"};

constexpr std::string_view without_object[] = {"-E",        "-M",     "-MM", "-fsyntax-only", "-###",
                                               "--version", "--help", "-v",  "--analyze"};

/// Where the suffix of a file's name begins; the length of the name where it has none.
std::size_t suffix_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos || dot == 0 ? name.size() : dot;
}

bool is_option(std::string_view word) { return word.size() > 1 && word.front() == '-'; }

/// @param language that an option `-x` before the word names.
bool is_source(const std::string &word, std::string_view language) {
  const std::string name = file_name(word);
  return is_language(language) || holds(suffixes, std::string_view(name).substr(suffix_of(name)));
}

/// The file that clang writes without `-o`.
std::string clang_output(const Strings &arguments) {
  std::string name = file_name(source_of(arguments));
  const auto given = [&](std::string_view word) { return holds(arguments, word); };
  if (name.empty() || std::any_of(std::begin(without_object), std::end(without_object), given))
    return "";
  if (!given("-c") && !given("-S"))
    return "a.out";
  const bool text = given("-S");
  name.resize(suffix_of(name));
  if (given("-emit-llvm"))
    return name + (text ? ".ll" : ".bc");
  return name + (text ? ".s" : ".o");
}

} // namespace

bool takes_value(std::string_view option) { return holds(with_value, option); }

Strings sources_of(const Strings &arguments) {
  Strings sources;
  std::string_view before, language;
  for (const std::string &word : arguments) {
    const std::string_view option = std::exchange(before, word);
    if (option == "-x")
      language = word;
    else if (takes_value(option) || word.empty())
      continue;
    else if (starts_with(word, "-x"))
      language = std::string_view(word).substr(2);
    else if (!is_option(word) && is_source(word, language))
      sources.push_back(word);
  }
  return sources;
}

std::string source_of(const Strings &arguments) {
  const Strings sources = sources_of(arguments);
  return sources.size() == 1 ? sources.front() : "";
}

std::string output_of(const Compiler &compiler) {
  const Strings command = compiler.command();
  for (std::size_t place = command.size(); place-- > 1;)
    if (command[place - 1] == "-o" || command[place - 1] == "--o")
      return command[place];
  const bool is_clang = compiler.kind == CompilerKind::Clang || compiler.kind == CompilerKind::Zig;
  return is_clang ? clang_output(compiler.arguments) : "";
}

} // namespace policybridge

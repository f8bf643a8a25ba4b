#include "compiler.h"

#include "files.h"
#include "source_language.h"
#include "sources.h"
#include "words.h"

#include <algorithm>
#include <optional>
#include <set>
#include <sys/stat.h>

namespace policybridge {

namespace {

struct Recognised {
  CompilerKind kind;
  std::size_t length;
};

/// Takes `suffix` from the end of `name`, if it is there.
bool chop(std::string_view &name, std::string_view suffix) {
  if (name.size() < suffix.size() || name.substr(name.size() - suffix.size()) != suffix)
    return false;
  name.remove_suffix(suffix.size());
  return true;
}

/// Whether `name` is TARGET-base-VERSION, target and version optional.
bool is_named(std::string_view name, std::string_view base, bool plus = false) {
  const std::size_t last = name.find_last_not_of("0123456789.");
  if (last != std::string_view::npos && last + 1 < name.size() && name[last] == '-')
    name = name.substr(0, last);
  if (plus)
    chop(name, "++");
  return chop(name, base) && (name.empty() || (name.size() > 1 && name.back() == '-'));
}

std::optional<CompilerKind> by_name(std::string_view name) {
  if (is_named(name, "clang", true))
    return CompilerKind::Clang;
  if (is_named(name, "opt"))
    return CompilerKind::Opt;
  return is_named(name, "llc") ? std::optional(CompilerKind::Llc) : std::nullopt;
}

bool is_zig(std::string_view name) { return name == "zig" || name == "python-zig"; }

bool is_python(std::string_view name) {
  return starts_with(name, "python") && name.find_first_not_of("0123456789.", 6) == std::string_view::npos;
}

bool is_driver(const Strings &words, std::size_t place) {
  return place < words.size() && (words[place] == "cc" || words[place] == "c++");
}

std::optional<Recognised> recognise(const Strings &words, std::size_t place) {
  const std::string name = file_name(words[place]);
  if (is_zig(name) && is_driver(words, place + 1))
    return Recognised{CompilerKind::Zig, 2};
  if (is_python(name) && is_driver(words, place + 3) && words[place + 1] == "-m" && words[place + 2] == "ziglang")
    return Recognised{CompilerKind::Zig, 4};
  std::optional<CompilerKind> kind = by_name(name);
  if (!kind)
    kind = by_name(file_name(real_path(find_program(words[place]))));
  return kind ? std::optional(Recognised{*kind, 1}) : std::nullopt;
}

std::string_view flag_name(std::string_view argument) {
  argument = argument.substr(0, argument.find('='));
  argument.remove_prefix(std::min(argument.find_first_not_of('-'), argument.size()));
  return argument;
}

/// Whether the driver may refuse -mllvm, which it does with -fembed-bitcode. A response file may hold that option too.
bool may_refuse_mllvm(const Strings &arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](std::string_view word) {
    return starts_with(word, "-fembed-bitcode") || starts_with(word, "@");
  });
}

bool writes_file(const std::string &argument) {
  const std::string name = argument.substr(0, argument.find('='));
  return name == "-o" || name == "--o" || name == "-disable-output" || name == "--disable-output";
}

} // namespace

std::string_view name_of(CompilerKind kind) {
  switch (kind) {
  case CompilerKind::Clang:
    return "clang";
  case CompilerKind::Zig:
    return "zig cc";
  case CompilerKind::Opt:
    return "opt";
  case CompilerKind::Llc:
    break;
  }
  return "llc";
}

bool is_build(const Strings &command) {
  static const std::set<std::string> names{"bmake", "gmake", "make", "meson", "ninja", "samu", "scons"};
  const auto is_env = [](const std::string &word) {
    return file_name(word) == "env" || word.find('=') != std::string::npos;
  };
  const auto first = std::find_if_not(command.begin(), command.end(), is_env);
  return first != command.end() && names.count(file_name(*first));
}

Result<Compiler> Compiler::of(const Strings &command) {
  for (std::size_t place = 0; place < command.size(); ++place) {
    if (const auto recognised = recognise(command, place)) {
      const auto cut = command.begin() + static_cast<std::ptrdiff_t>(place + recognised->length);
      return Compiler{recognised->kind, {command.begin(), cut}, {cut, command.end()}};
    }
    if (!command[place].empty() && command[place].front() == '-')
      break;
  }
  std::string shown;
  for (std::size_t place = 0; place < std::min<std::size_t>(command.size(), 3); ++place)
    shown += (place ? " " : "") + command[place];
  const std::string wrong = command.empty() ? "there is no compiler: give its command behind --"
                                            : "no compiler that asks is started by '" + shown + "'";
  return invalid_argument(wrong +
                          "; known are clang, clang++, opt and llc (also with a target before and a version after "
                          "the name), zig cc, zig c++, python -m ziglang cc, and any of them behind a wrapper such "
                          "as ccache");
}

Strings Compiler::command() const {
  Strings words = start;
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

Strings Compiler::with_flags(const Strings &flags) const {
  Strings words = start;
  // Without this, a command that only links or preprocesses would warn of unused flags, or fail under -Werror.
  if (kind == CompilerKind::Clang)
    words.emplace_back("--start-no-unused-arguments");
  const bool by_cc1 = kind == CompilerKind::Clang && may_refuse_mllvm(arguments);
  for (const std::string &flag : flags) {
    const auto same = [&flag](const std::string &argument) { return flag_name(argument) == flag_name(flag); };
    if (std::any_of(arguments.begin(), arguments.end(), same))
      continue;
    if (by_cc1)
      words.insert(words.end(), {"-Xclang", "-mllvm", "-Xclang"});
    else if (kind == CompilerKind::Clang || kind == CompilerKind::Zig)
      words.emplace_back("-mllvm");
    words.push_back(flag);
  }
  if (kind == CompilerKind::Clang)
    words.emplace_back("--end-no-unused-arguments");
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

Strings Compiler::with_plugin(const std::string &plugin, const Strings &options, bool loads_early,
                              const std::string &dependency) const {
  Strings words = start;
  if (kind == CompilerKind::Opt) {
    words.push_back("-load-pass-plugin=" + plugin);
    words.insert(words.end(), options.begin(), options.end());
  } else {
    words.emplace_back("--start-no-unused-arguments");
    if (loads_early)
      words.push_back("-fplugin=" + plugin);
    words.push_back("-fpass-plugin=" + plugin);
    for (const std::string &option : options)
      words.insert(words.end(), {"-mllvm", option});
    if (!dependency.empty())
      words.insert(words.end(), {"-Xclang", "-fdepfile-entry=" + dependency});
    words.emplace_back("--end-no-unused-arguments");
  }
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

bool Compiler::only_compiles() const {
  if (kind == CompilerKind::Opt)
    return true;
  const auto needs_tools = [](std::string_view word) {
    const std::size_t dot = word.rfind('.');
    const std::string_view suffix = dot == word.npos ? std::string_view() : word.substr(dot);
    return starts_with(word, "-save-temps") || starts_with(word, "--save-temps") || suffix == ".s" || suffix == ".S" ||
           suffix == ".sx" || starts_with(word, "assembler") || starts_with(word, "-xassembler");
  };
  return (holds(arguments, "-c") || holds(arguments, "-S")) && !may_refuse_mllvm(arguments) &&
         std::none_of(arguments.begin(), arguments.end(), needs_tools);
}

std::string Compiler::level() const {
  if (optimises_for_size())
    return "Oz";
  std::string last;
  for (const std::string &argument : arguments) {
    if (kind == CompilerKind::Opt && argument.find("default<Os>") != std::string::npos)
      return "Os";
    const std::size_t name = std::min(argument.find_first_not_of('-'), argument.size());
    if (name && argument.compare(name, 1, "O") == 0)
      last = argument.substr(name);
  }
  return last == "Os" || last == "Oz" ? "Os" : "O2";
}

bool Compiler::is_thinlto_backend() const {
  constexpr std::string_view option = "-fthinlto-index=";
  const auto index = std::find_if(arguments.rbegin(), arguments.rend(),
                                  [&](const std::string &argument) { return starts_with(argument, option); });
  struct stat file;
  return kind == CompilerKind::Clang && index != arguments.rend() &&
         stat(index->c_str() + option.size(), &file) == 0 && file.st_size > 0;
}

std::map<std::string, std::string> Compiler::scope_labels() const {
  const auto is_response = [](const std::string &argument) { return starts_with(argument, "@"); };
  if (kind == CompilerKind::Opt || kind == CompilerKind::Llc ||
      std::any_of(arguments.begin(), arguments.end(), is_response))
    return {};
  const auto lto = std::find_if(arguments.rbegin(), arguments.rend(), [](const std::string &argument) {
    return argument == "-flto" || starts_with(argument, "-flto=") || argument == "-fno-lto";
  });
  const bool links_later = lto != arguments.rend() && *lto != "-fno-lto";
  const char *phase = is_thinlto_backend() ? "link" : links_later ? "pre-link" : "compile";
  std::map<std::string, std::string> labels{{"level", level()}, {"phase", phase}};
  const Strings words = command();
  std::set<std::string_view> languages;
  for (const std::string &source : sources_of(arguments))
    languages.insert(source_language(source, words));
  // One session decides for all sources; if their languages differ, it has none.
  if (languages.size() == 1 && !languages.begin()->empty())
    labels.emplace("language", *languages.begin());
  return labels;
}

bool Compiler::optimises_for_size() const {
  if (kind == CompilerKind::Opt)
    return std::any_of(arguments.begin(), arguments.end(), [](const std::string &argument) {
      return argument.find("default<Oz>") != std::string::npos || argument == "-Oz" || argument == "--Oz";
    });
  const auto level = std::find_if(arguments.rbegin(), arguments.rend(),
                                  [](const std::string &argument) { return argument.compare(0, 2, "-O") == 0; });
  return kind == CompilerKind::Clang && level != arguments.rend() && *level == "-Oz";
}

bool Compiler::repeatable() const {
  for (const char *standard : {"-", "-o-", "-o=-", "--o=-"})
    if (holds(arguments, standard))
      return false;
  if (kind == CompilerKind::Clang || kind == CompilerKind::Zig)
    return true;
  return std::any_of(arguments.begin(), arguments.end(), is_file) &&
         (kind == CompilerKind::Llc || std::any_of(arguments.begin(), arguments.end(), writes_file));
}

bool is_compiler(std::string_view name) { return by_name(name) || is_zig(name); }

bool is_python_zig(const Strings &start) {
  const std::size_t size = start.size();
  return size >= 4 && start[size - 3] == "-m" && start[size - 2] == "ziglang";
}

} // namespace policybridge

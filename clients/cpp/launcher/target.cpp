#include "target.h"

#include "files.h"
#include "llvm_version.h"
#include "words.h"

#include <algorithm>
#include <array>
#include <optional>

namespace policybridge {

namespace {

constexpr int target_milliseconds = 30000;

/// Options that change the triple, which clang is asked with.
constexpr std::array<std::string_view, 11> switches = {
    "-m16", "-m32", "-m64", "-mx32", "-mthumb", "-mno-thumb", "-marm", "-mbig-endian", "-mlittle-endian", "-EB", "-EL"};
constexpr std::array<std::string_view, 4> with_values = {"--target=", "-march=", "-mcpu=", "-mabi="};
constexpr std::array<std::string_view, 2> with_words = {"-target", "-arch"};

/// The words of a command on which the triple depends; nothing where others may, too.
std::optional<Strings> words_of(const Strings &arguments) {
  Strings words;
  for (std::size_t place = 0; place < arguments.size(); ++place) {
    const std::string &argument = arguments[place];
    const auto begins = [&](std::string_view option) { return starts_with(argument, option); };
    if (begins("@") || begins("--config") || begins("-config") || argument == "-triple" || argument == "-cc1")
      return std::nullopt;
    if (holds(switches, argument) || std::any_of(with_values.begin(), with_values.end(), begins))
      words.push_back(argument);
    if (holds(with_words, argument) && place + 1 < arguments.size())
      words.insert(words.end(), {argument, arguments[++place]});
  }
  return words;
}

Result<std::string> ask_target(const Compiler &compiler, const Strings &words, Signals &signals) {
  Strings command = compiler.start;
  command.insert(command.end(), words.begin(), words.end());
  command.emplace_back("-print-effective-triple");
  const Result<std::string> output = output_of(command, signals, target_milliseconds);
  return output.ok() ? Result<std::string>(output->substr(0, output->find('-'))) : output.status();
}

} // namespace

std::string target_of(const Compiler &compiler, Signals &signals) {
  const std::optional<Strings> words = words_of(compiler.arguments);
  if (compiler.kind != CompilerKind::Clang || !words)
    return "";
  // The name may begin with the target: aarch64-linux-gnu-clang.
  std::string question = "target " + file_name(compiler.start.back());
  for (const std::string &word : *words)
    question += "\n" + word;
  return remembered_name(compiler.start, question, [&] { return ask_target(compiler, *words, signals); });
}

} // namespace policybridge

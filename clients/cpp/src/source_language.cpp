#include "source_language.h"

#include <algorithm>
#include <iterator>

namespace policybridge {

namespace {

struct LanguageNames {
  std::string_view language;
  std::string_view names; // each with a space before and behind
};

/// As clang's driver takes them (`lookupTypeForExtension` in clang/lib/Driver/Types.cpp).
constexpr LanguageNames by_suffix[] = {{"c", " c i "},
                                       {"c++", " C CC CPP CXX c++ c++m cc ccm cp cpp cppm cxx cxxm ii iim "},
                                       {"objective-c", " m mi "},
                                       {"objective-c++", " M mm mii "},
                                       {"rust", " rs "}};

/// Of `-x`.
constexpr LanguageNames by_option[] = {
    {"c", " c cpp-output "},
    {"c++", " c++ c++-cpp-output c++-module c++-module-cpp-output "},
    {"objective-c", " objective-c objective-c-cpp-output "},
    {"objective-c++", " objective-c++ objective-c++-cpp-output "},
    {"", " cl cuda cuda-cpp-output hip hip-cpp-output ir "}};

template <std::size_t count>
const LanguageNames *language_named(const LanguageNames (&all)[count], std::string_view name) {
  const std::string word = " " + std::string(name) + " ";
  const LanguageNames *end = all + count;
  const LanguageNames *found =
      std::find_if(all, end, [&](const LanguageNames &each) { return each.names.find(word) != std::string_view::npos; });
  return found == end ? nullptr : found;
}

std::string_view language_of_suffix(std::string_view source) {
  const std::size_t dot = source.rfind('.');
  const LanguageNames *found = dot == source.npos ? nullptr : language_named(by_suffix, source.substr(dot + 1));
  return found ? found->language : std::string_view();
}

/// Whether a word is a driver for C++: `…++`, perhaps with a version behind.
bool is_for_cxx(std::string_view word) {
  word = word.substr(0, word.find_last_not_of("0123456789.-") + 1);
  return word.size() > 2 && word.substr(word.size() - 2) == "++";
}

} // namespace

std::string_view source_language(std::string_view source, const std::vector<std::string> &command) {
  std::string_view language = language_of_suffix(source);
  const auto behind = std::find(command.rbegin(), command.rend(), source).base();
  if (behind == command.begin() || behind == std::next(command.begin()))
    return language;
  const auto named = std::prev(behind);
  // A wrapper such as ccache may come before the driver.
  const auto options = std::find_if(command.begin(), named, [](const std::string &word) { return word[0] == '-'; });
  if (language == "c" && std::any_of(command.begin(), options, is_for_cxx))
    language = "c++";
  std::string_view told = language;
  for (auto word = std::next(command.begin()); word != named; ++word) {
    if (word->compare(0, 2, "-x"))
      continue;
    const std::string_view name = word->size() > 2 ? std::string_view(*word).substr(2) : std::string_view(word[1]);
    if (name == "none")
      told = language;
    else if (const LanguageNames *given = language_named(by_option, name))
      told = given->language;
  }
  return told;
}

bool is_language(std::string_view name) { return language_named(by_option, name) != nullptr; }

} // namespace policybridge

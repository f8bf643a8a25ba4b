#include "unit_labels.h"

#include "gcc-plugin.h"

#include "langhooks.h"
#include "plugin-version.h"
#include "tm.h"

#include <algorithm>
#include <string_view>

namespace policybridge::plugin {
namespace {

/// The language by the name of GCC's front end, such as `GNU C++17`; empty for another one.
std::string language() {
  std::string_view name = lang_hooks.name;
  constexpr std::string_view before = "GNU ";
  name.remove_prefix(std::min(name.size(), name.rfind(before, 0) == 0 ? before.size() : name.size()));
  std::string language(name.substr(0, name.find_first_of("0123456789")));
  for (char &letter : language)
    letter = static_cast<char>(TOLOWER(letter));
  constexpr std::string_view known[] = {"c", "c++", "objective-c", "objective-c++", "rust"};
  return std::find(std::begin(known), std::end(known), language) == std::end(known) ? std::string() : language;
}

/// The architecture for which the compiler was configured, as LLVM's triples have it; empty if it does not tell.
std::string target() {
#ifdef TARGET_64BIT
  const bool is_narrow = !TARGET_64BIT;
#else
  const bool is_narrow = false;
#endif
  const std::string_view configured = gcc_version.configuration_arguments;
  for (const std::string_view option : {" --target=", " --host=", " --build="}) {
    const std::size_t begin = configured.find(option);
    if (begin == configured.npos)
      continue;
    const std::string_view triple = configured.substr(begin + option.size());
    const std::string architecture(triple.substr(0, triple.find_first_of("- ")));
    return architecture == "x86_64" && is_narrow ? "i386" : architecture;
  }
  return {};
}

} // namespace

std::map<std::string, std::string> unit_labels() {
  const std::string_view version = gcc_version.basever;
  std::map<std::string, std::string> labels{{"level", optimize_size > 1 ? "Oz" : optimize_size ? "Os" : "O2"},
                                            {"phase", in_lto_p ? "link" : "compile"},
                                            {"gcc", std::string(version.substr(0, version.find('.')))}};
  for (auto [name, value] : {std::pair{"language", language()}, {"target", target()}})
    if (!value.empty())
      labels[name] = value;
  return labels;
}

} // namespace policybridge::plugin

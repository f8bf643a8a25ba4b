#include "module_names.h"

#include "percent.h"
#include "process_names.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace policybridge::plugin {
namespace {

bool is_merged(const Module &module) { return module.getModuleIdentifier() == "ld-temp.o"; }

/// The output file of this process; empty if its command line does not name it.
std::string own_output() {
  const std::vector<std::string> words = own_command();
  for (std::size_t place = words.size(); place-- > 1;)
    if (words[place - 1] == "-o" || words[place - 1] == "--output")
      return words[place];
    else if (StringRef word = words[place]; word.consume_front("--output=") || word.consume_front("-o="))
      return word.str();
  return "";
}

/// The name without a number behind it, as `f` is of `f.1`.
StringRef without_number(StringRef name) {
  const auto [stem, number] = name.rsplit('.');
  return !stem.empty() && !number.empty() && all_of(number, isDigit) ? stem : name;
}

} // namespace

std::string encoded(StringRef name) { return percent_encoded({name.data(), name.size()}); }

std::string name_of(const Module &module) {
  if (is_merged(module))
    if (std::string output = own_output(); !output.empty())
      return output;
  return module.getSourceFileName().empty() ? module.getModuleIdentifier() : module.getSourceFileName();
}

StringRef lasting_name(StringRef name) {
  const StringRef stem = without_number(name);
  return stem.size() < name.size() && stem.ends_with(".llvm") ? stem.drop_back(5) : name;
}

LastingNames::LastingNames(const Module &module) {
  if (!is_merged(module))
    return;
  StringMap<unsigned> counts;
  for (const Function &function : module)
    if (!function.hasLocalLinkage())
      ++counts[function.getName()];
  for (const Function &function : module)
    if (function.hasLocalLinkage()) {
      const StringRef stem = without_number(function.getName());
      const unsigned before = counts[stem]++;
      std::string name = before ? (stem + "." + Twine(before)).str() : stem.str();
      if (name != function.getName())
        renamed_[function.getName()] = std::move(name);
    }
}

StringRef LastingNames::of(StringRef name) const {
  const auto found = renamed_.find(name);
  return found == renamed_.end() ? lasting_name(name) : StringRef(found->second);
}

} // namespace policybridge::plugin

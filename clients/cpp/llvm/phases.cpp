#include "phases.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

using namespace llvm;

namespace policybridge::plugin {

Result<Phases> Phases::parse(const std::string &text) {
  Phases phases;
  if (text.empty())
    return phases;
  phases = {{}, true};
  SmallVector<StringRef> words;
  StringRef(text).split(words, ',', -1, false);
  for (const StringRef word : words) {
    if (!is_contained({compile_phase, pre_link_phase, link_phase}, word))
      return invalid_argument("is compile, pre-link, link or several with commas, not '" + text + "'");
    phases.chosen.push_back(word.str());
  }
  return phases;
}

bool Phases::holds(const std::string &phase) const { return is_contained(chosen, phase); }

} // namespace policybridge::plugin

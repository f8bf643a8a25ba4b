#ifndef POLICYBRIDGE_LLVM_PHASES_H
#define POLICYBRIDGE_LLVM_PHASES_H

#include "policybridge/status.h"

#include <string>
#include <vector>

namespace policybridge::plugin {

/// Where in a build a module is optimised, and the value of the label `phase`: without LTO; before linking; at link time.
inline constexpr const char *compile_phase = "compile";
inline constexpr const char *pre_link_phase = "pre-link";
inline constexpr const char *link_phase = "link";

/// The phases in which the plugin decides; LLVM decides in the others. The default leaves out the phase before linking,
/// because the linker optimises the same functions again, and then knows all their callers.
struct Phases {
  std::vector<std::string> chosen = {compile_phase, link_phase};
  bool is_given = false; ///< false: the user gave no phases, and these are the default

  /// Read a list with commas; an empty text is the default. InvalidArgument: a phase has another name.
  static Result<Phases> parse(const std::string &text);

  bool holds(const std::string &phase) const;
};

} // namespace policybridge::plugin

#endif

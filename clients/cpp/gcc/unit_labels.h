#ifndef POLICYBRIDGE_GCC_UNIT_LABELS_H
#define POLICYBRIDGE_GCC_UNIT_LABELS_H

#include <map>
#include <string>

namespace policybridge::plugin {

/// The labels of the translation unit that a policy's scope is compared with: `level` (Oz, Os, O2), `phase` (compile,
/// link), `gcc` (its major version) and, if known, `language` (none at link time, where units are merged) and `target`
/// (the architecture).
std::map<std::string, std::string> unit_labels();

} // namespace policybridge::plugin

#endif

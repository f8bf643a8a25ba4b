#ifndef POLICYBRIDGE_SRC_LACKING_H
#define POLICYBRIDGE_SRC_LACKING_H

#include <string>

namespace policybridge {

/// Names, after a message about a part that is not there, the command that shows which parts there are.
inline std::string lacking(const std::string &message) {
  return message + "; policybridge doctor tells what this machine has";
}

} // namespace policybridge

#endif

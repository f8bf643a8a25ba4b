#ifndef POLICYBRIDGE_PLUGIN_PROCESS_NAMES_H
#define POLICYBRIDGE_PLUGIN_PROCESS_NAMES_H

#include <string>
#include <vector>

namespace policybridge::plugin {

/// The command line of this process; empty where the system does not give it.
std::vector<std::string> own_command();

/// The command line of the driver that started this process; empty where this process is the driver. Of the output that
/// the user names, a compiler whose result the driver assembles or links is not told.
std::vector<std::string> driver_command();

/// The file for this process and its module: `%p` in the pattern stands for the process id, `%m` for `name`, in
/// which everything but letters, digits, `.`, `_` and `-` becomes `_`.
std::string file_of(std::string pattern, std::string name);

} // namespace policybridge::plugin

#endif

#ifndef POLICYBRIDGE_SRC_ADDRESS_H
#define POLICYBRIDGE_SRC_ADDRESS_H

#include "policybridge/status.h"

#include <string_view>

namespace policybridge {

/// Refuse what is plainly no address of a policy server, which a name service would be asked for. InvalidArgument: it is
/// a page, or a file's name.
Status check_address(std::string_view address);

} // namespace policybridge

#endif

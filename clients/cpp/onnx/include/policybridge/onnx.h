#ifndef POLICYBRIDGE_ONNX_H
#define POLICYBRIDGE_ONNX_H

#include "policybridge/connection.h"

namespace policybridge {

/// The ONNX model in the file `target`, evaluated in this process by ONNX Runtime, which the first session opens.
///
/// Features are bound to the model's inputs by name, as the server binds them; nothing is converted. The advice is the
/// output of the advice's name, or the only one. Of a policy's policy.toml nothing is read: neither packed inputs nor
/// an advice head. A file has no versions, no exploration and no ledger, and the timeout does not bound the model's
/// work.
Result<std::shared_ptr<Connection>> connect_onnx(std::string_view target, const ConnectOptions &options);

/// For `ConnectOptions::schemes`.
inline constexpr Scheme onnx_scheme{"onnx", connect_onnx};

} // namespace policybridge

#endif

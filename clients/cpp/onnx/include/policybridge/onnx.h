#ifndef POLICYBRIDGE_ONNX_H
#define POLICYBRIDGE_ONNX_H

#include "policybridge/connection.h"

namespace policybridge {

/// The ONNX model in the file `target`, evaluated in this process by ONNX Runtime, which the first session opens.
///
/// Features are bound to the model's inputs by name, as the server binds them; element types are not converted. The
/// advice is the output with the advice's name, or the only output. A policy.toml is not read, so there are no packed
/// inputs and no advice head. A file has no versions, no exploration and no ledger, and the timeout does not bound the
/// evaluation.
Result<std::shared_ptr<Connection>> connect_onnx(std::string_view target, const ConnectOptions &options);

/// For `ConnectOptions::schemes`.
inline constexpr Scheme onnx_scheme{"onnx", connect_onnx};

} // namespace policybridge

#endif

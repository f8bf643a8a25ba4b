#ifndef POLICYBRIDGE_POLICYBRIDGE_H
#define POLICYBRIDGE_POLICYBRIDGE_H

/// Ask a policy server from inside a compiler: `ModelRunner::open`, set the features, `evaluate`.

#include "policybridge/connection.h"   // IWYU pragma: export
#include "policybridge/model_runner.h" // IWYU pragma: export
#include "policybridge/session.h"      // IWYU pragma: export
#include "policybridge/status.h"       // IWYU pragma: export
#include "policybridge/tensor.h"       // IWYU pragma: export
#include "policybridge/tensor_spec.h"  // IWYU pragma: export

#endif

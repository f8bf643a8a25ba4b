#include "policybridge/grpc.h"

#include "handles.h"
#include "policybridge_grpc.h"

const pb_scheme *pb_grpcs_scheme(void) {
  static constexpr pb_scheme scheme{policybridge::grpcs_scheme};
  return &scheme;
}

const pb_scheme *pb_grpc_scheme(void) {
  static constexpr pb_scheme scheme{policybridge::grpc_scheme};
  return &scheme;
}

#include "policybridge/onnx.h"

#include "handles.h"
#include "policybridge_onnx.h"

const pb_scheme *pb_onnx_scheme(void) {
  static constexpr pb_scheme scheme{policybridge::onnx_scheme};
  return &scheme;
}

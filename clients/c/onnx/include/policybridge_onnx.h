#ifndef PB_ONNX_H
#define PB_ONNX_H

#include "policybridge.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The scheme of ONNX models in this process, for `pb_connect_options.schemes`. It is never freed. */
PB_EXPORT const pb_scheme *pb_onnx_scheme(void);

#ifdef __cplusplus
}
#endif

#endif

#ifndef PB_GRPC_H
#define PB_GRPC_H

#include "policybridge.h"

#ifdef __cplusplus
extern "C" {
#endif

/** For `pb_connect_options.schemes`: gRPC in plaintext, and over TLS. They live as long as the program. */
PB_EXPORT const pb_scheme *pb_grpc_scheme(void);
PB_EXPORT const pb_scheme *pb_grpcs_scheme(void);

#ifdef __cplusplus
}
#endif

#endif

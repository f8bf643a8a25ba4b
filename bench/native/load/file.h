#ifndef POLICYBRIDGE_BENCH_FILE_H
#define POLICYBRIDGE_BENCH_FILE_H

#include "policybridge/status.h"
#include "policybridge/tensor_spec.h"

#include <string>
#include <vector>

namespace bench {

/// What is sent, made beforehand by policybridge_bench/requests.py: text lines `feature NAME TYPE DIM…` and one
/// `advice NAME TYPE DIM…` (none where no session is opened), an empty line, then messages behind their sizes as uint64.
struct Messages {
  policybridge::Signature signature;
  std::vector<std::string> messages;
};

/// InvalidArgument: the file cannot be read, has another form, or holds no message.
policybridge::Result<Messages> read_messages(const std::string &path);

} // namespace bench

#endif

#ifndef POLICYBRIDGE_BENCH_CLIENTS_H
#define POLICYBRIDGE_BENCH_CLIENTS_H

#include "file.h"
#include "measure.h"
#include "options.h"
#include "policybridge/status.h"

#include <memory>

namespace bench {

using Made = policybridge::Result<std::unique_ptr<Client>>;

/// A session of the client library, over any address that it takes.
Made make_session(const Options &options, Messages messages);
/// A unary gRPC call, as a generated stub makes it, of messages encoded beforehand. Any answer but an error will do.
Made make_unary(const Options &options, Messages messages);
/// A bidirectional gRPC stream of messages encoded beforehand, each answered by one.
Made make_stream(const Options &options, Messages messages);
/// A bare Unix or TCP socket; each message is answered by 9 bytes, the first of them 0.
Made make_socket(const Options &options, Messages messages);
/// HTTP/1.1 on one connection; each message is a whole request, and its answer says its length.
Made make_http(const Options &options, Messages messages);

} // namespace bench

#endif

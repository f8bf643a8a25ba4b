#ifndef POLICYBRIDGE_BENCH_LOAD_H
#define POLICYBRIDGE_BENCH_LOAD_H

#include "policybridge/status.h"
#include "policybridge/tensor_spec.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace bench {

/// The load of one client, with the names of policybridge_bench/load.py.
struct Options {
  /// `session`, `unary`, `stream`, `socket` or `http`.
  std::string kind;
  std::string address;
  std::string method;
  std::string policy;
  /// The messages to send; see `Messages`.
  std::string file;
  /// Of the measurement.
  double seconds = 1;
  double warm_up = 0.2;
  /// Asks per second; absent for a closed loop.
  std::optional<double> rate;
};

/// Read `--name=value` words; prints an error and gives nothing if they are wrong.
std::optional<Options> parse_options(int count, char **words);

/// Prepared messages, written by policybridge_bench/requests.py: text lines `feature NAME TYPE DIM…` and one
/// `advice NAME TYPE DIM…` (none where no session is opened), an empty line, then messages behind their sizes as uint64.
struct Messages {
  policybridge::Signature signature;
  std::vector<std::string> messages;
};

/// InvalidArgument: the file cannot be read, has another form, or holds no message.
policybridge::Result<Messages> read_messages(const std::string &path);

/// A client of one kind.
class Client {
public:
  virtual ~Client() = default;
  /// Send message `number` (counted without end; the client begins again at its first) and wait for the answer.
  virtual policybridge::Status ask(std::size_t number) = 0;

protected:
  Client() = default;
  Client(const Client &) = delete;
  Client &operator=(const Client &) = delete;
};

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

/// Warm up, print `ready`, wait for a line, ask, and print the report; see policybridge_bench/load.py.
policybridge::Status measure(Client &client, const Options &options);

} // namespace bench

#endif

#ifndef POLICYBRIDGE_CONNECTION_H
#define POLICYBRIDGE_CONNECTION_H

#include "policybridge/session.h"
#include "policybridge/status.h"
#include "policybridge/tensor_spec.h"

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

struct ConnectOptions;

/// A connection to one server, which any number of threads and runners may share. Sessions may outlive it.
class Connection {
public:
  virtual ~Connection() = default;

  /// Open a session. `signature` and `options` have passed their checks.
  /// NotFound: no such policy. Unavailable: no server. DeadlineExceeded: no answer in time. InvalidArgument: the
  /// signature does not fit the policy, which over `socket:` is found at the first observation.
  virtual Result<std::unique_ptr<Session>> open(const OpenOptions &options, const Signature &signature) = 0;

  /// Find out whether the server can be reached. Unavailable: it cannot. DeadlineExceeded: it does not answer in time.
  virtual Status check() = 0;

  /// Connect ahead of the first call, as far as the kind of connection has that. Returns when the server is connected or
  /// cannot be reached, and soon after `goes_on`, which is called again and again, is false.
  /// False: a try to reach it has failed.
  virtual bool prepare(const std::function<bool()> &goes_on) {
    (void)goes_on;
    return true;
  }

  /// Report the outcome of a session's compilation, from any process, also after the end of the session.
  /// NotFound: the ledger has no such session. Unimplemented: there is no ledger.
  virtual Status report_outcome(const std::string &session_id, const Outcome &outcome) = 0;

protected:
  Connection() = default;
  Connection(const Connection &) = delete;
  Connection &operator=(const Connection &) = delete;
};

/// One kind of connection: the first word of an address, and the function that takes the rest of it. The function sends
/// nothing.
struct Scheme {
  std::string_view name;
  Result<std::shared_ptr<Connection>> (*connect)(std::string_view target, const ConnectOptions &options);
};

/// A client's credentials for a server on TCP: files that are read when the connection is made. For an empty path the
/// environment variable is used. `socket:` and `grpc:unix:` need no credentials.
struct Credentials {
  /// PEM certificates of those who sign the server's; POLICYBRIDGE_TLS_CA, else gRPC's own.
  std::string ca;
  /// The client's own certificate chain in PEM, and its key, for servers that ask for one: POLICYBRIDGE_TLS_CERTIFICATE
  /// and POLICYBRIDGE_TLS_KEY.
  std::string certificate;
  std::string key;
  /// Holds the token; white space around it is ignored. POLICYBRIDGE_TOKEN_FILE. It is sent over TLS, and in plaintext
  /// to this machine alone.
  std::string token_file;
};

/// The options of a connection.
struct ConnectOptions {
  /// Bounds every exchange with the server as a whole, opening and each decision alike; more than 0.
  std::chrono::microseconds timeout = std::chrono::seconds(10);
  /// Over `socket:`, how long to spin for an answer before sleeping, because an answer mostly comes sooner than a
  /// sleeping core wakes up. Where cores are scarce and spinning fails, it is seldom tried. 0: never.
  std::chrono::microseconds spin = std::chrono::microseconds(50);
  /// Kinds of connection beside the built-in ones, `socket` and `pipe`: `{grpc_scheme, grpcs_scheme}` of
  /// policybridge/grpc.h, `{onnx_scheme}` of policybridge/onnx.h, or your own. The first of a name wins.
  std::vector<Scheme> schemes;
  /// For `onnx:`, the library ONNX Runtime; empty for the environment variable POLICYBRIDGE_ONNXRUNTIME, else the
  /// loader's libonnxruntime.so.
  std::string onnxruntime;
  /// For `grpc:` and `grpcs:`.
  Credentials credentials;
  /// File descriptors that end every wait for the server with the status Cancelled once they are readable, over
  /// `socket:`, `grpc:` and `grpcs:`; −1 for none. They stay open as long as the connection and its sessions.
  std::array<int, 2> interrupts = {-1, -1};
};

/// Over the server's Unix socket; see proto/SOCKET.md. `target` is the socket's path.
Result<std::shared_ptr<Connection>> connect_socket(std::string_view target, const ConnectOptions &options);

/// LLVM's interactive channel, from the compiler's side: observations into the FIFO BASE.out, advice out of BASE.in.
/// It has one session at a time, and neither a version nor outcomes (Unimplemented).
Result<std::shared_ptr<Connection>> connect_pipe(std::string_view target, const ConnectOptions &options);

/// The kinds of connection that every program has.
inline constexpr Scheme socket_scheme{"socket", connect_socket};
inline constexpr Scheme pipe_scheme{"pipe", connect_pipe};

/// Make a connection; nothing is sent before it is used.
///
/// `address` is `socket:PATH`, `pipe:BASE`, or of a scheme in `options.schemes`: `grpc:HOST:PORT`, `grpcs:HOST:PORT`
/// (TLS), `grpc:unix:PATH`, `onnx:FILE`. A bare path is a socket, anything else bare is a gRPC target, as for the Python client.
///
/// Several addresses, with commas between, each with its scheme: the first server that answers is asked when a session
/// is opened, but sockets that this machine has before all others. Those of schemes that the program does not have are
/// left out, unless all are.
/// Unimplemented: the program does not have that scheme; the message says what to link. InvalidArgument: the address or
/// the timeout is invalid.
Result<std::shared_ptr<Connection>> connect(std::string_view address, const ConnectOptions &options = {});

} // namespace policybridge

#endif

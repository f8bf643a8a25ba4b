#ifndef POLICYBRIDGE_SESSION_H
#define POLICYBRIDGE_SESSION_H

#include "policybridge/form.h"
#include "policybridge/status.h"
#include "policybridge/tensor_spec.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

/// Names a policy: by version, by alias, or by neither for the alias `latest`.
struct PolicyReference {
  std::string name;
  std::optional<std::uint64_t> version;
  std::optional<std::string> alias;

  /// Read `NAME`, `NAME@VERSION` or `NAME@ALIAS`. InvalidArgument: a version above 2⁶⁴ − 1.
  static Result<PolicyReference> parse(std::string_view text);
};

/// The exact version that answers; `digest` is `sha256:` and hexadecimal digits.
struct PolicyVersion {
  std::string name;
  std::uint64_t version = 0;
  std::string digest;
};

/// How a session departs from the policy's best advice. The same seed gives the same choices.
struct Exploration {
  /// Determines every choice of the session.
  std::uint64_t seed = 0;
  /// Above 0, advice is drawn from softmax(logits / temperature); 0 takes the best one.
  double temperature = 0;
  /// With this probability, 0 to 1, any legal advice is drawn, each as likely.
  double epsilon = 0;

  /// Read `temperature=T,epsilon=E,seed=S`: in any order, each at most once, a temperature or an epsilon among them.
  /// InvalidArgument: the text is not of this form, or a value is out of its range.
  static Result<Exploration> parse(std::string_view text);

  /// The exploration of one module of a build: the same values, and as seed the first 8 bytes, as a big-endian number,
  /// of the SHA-256 of the seed in decimal digits, a line feed and `module`, the source file as the compiler's command
  /// names it. So the modules of a build explore differently, and each the same in every build.
  Exploration of_module(std::string_view module) const;
};

/// Where a session's decisions are made: `There` by the server, `Here` in this process by the version's form
/// (docs/forms.md). `Auto`: here if the version has a form that fits, else there. There, too, goes an advice of floats, whose
/// last bits may differ, a decision that the form fails to make, and over `socket:` all if the form has more than 1 MiB,
/// which takes longer to read than most modules to ask.
enum class Evaluate { There, Auto, Here };

/// Read `there`, `auto` or `here`. InvalidArgument: the text is another one.
Result<Evaluate> parse_evaluate(std::string_view text);

/// A portable form of a policy's version: the digest `sha256:` … of its bytes, and their number.
struct FormReference {
  std::string digest;
  std::uint64_t bytes = 0;
};

/// What became of the records of sessions that decide here (docs/clients.md).
struct RecordCounts {
  std::uint64_t kept = 0;    ///< on disk, because the server went away before it had acknowledged them
  std::uint64_t sent = 0;    ///< of earlier sessions, and acknowledged by their server
  std::uint64_t refused = 0; ///< of earlier sessions, and removed because their server does not take them
  Status refusal = {};       ///< why the last one was refused
};

/// The options of a session, besides its signature.
struct OpenOptions {
  PolicyReference policy;
  /// The module, or the first function.
  std::string context;
  /// For the policy to read.
  std::map<std::string, std::string> options;
  /// For people and trainers to find the session by.
  std::map<std::string, std::string> labels;
  /// Absent: always the policy's best advice.
  std::optional<Exploration> exploration;
  /// Whether the client can ask for several kinds of decisions, see `Session::bind`. Then a session opens on a policy that
  /// lacks the kind of the first signature, too; `SessionInfo::decides` tells the others. As over `socket:`, the signature
  /// travels with the first observation.
  bool several_kinds = false;
  /// Where the decisions of a `ModelRunner` are made.
  Evaluate evaluate = Evaluate::Auto;
  /// Whether the server offers its forms, and is told that this client decides. A `ModelRunner` sets it by `evaluate`.
  bool takes_forms = false;
  /// Whether the record of a session that decides here is kept on disk if the server goes away, for the next client that
  /// reaches it, and those of earlier sessions are sent. POLICYBRIDGE_SPOOL=0 of the environment switches it off, too.
  bool spool = true;
  /// Counts these records where the session is closed; may be null.
  std::shared_ptr<RecordCounts> records = {};

  /// InvalidArgument: both a version and an alias, a text that is no UTF-8, an exploration out of its range.
  Status check() const;
};

/// A session's id and the policy version that answers it.
struct SessionInfo {
  /// The server's id of the session.
  std::string id;
  /// Answers every observation of the session, whatever is published meanwhile.
  PolicyVersion policy;
  /// The kinds of decisions that the policy declares, each by the name of the advice; empty: it declares none.
  std::vector<std::string> decides = {};
  /// The forms by which this client may decide, by the kinds of decisions; the form of an only model by the empty name.
  std::map<std::string, FormReference> forms = {};
  /// The kinds that are missing in `decides` because the session's labels are outside of their scopes, each with the
  /// reason.
  std::map<std::string, std::string> outside = {};

  /// Whether the policy declares a kind of decision.
  bool declares(std::string_view kind) const;
};

/// The outcome of a compilation: named numbers and a word.
struct Outcome {
  /// Named numbers: `text` bytes, `cycles`, `seconds`, …
  std::map<std::string, double> values;
  /// One word: `ok`, `crash`, `timeout`, …; or empty.
  std::string status;
  /// Named numbers of parts of the module, by the part's context: of functions, by their names.
  std::map<std::string, std::map<std::string, double>> contexts = {};

  /// InvalidArgument: a name is empty or no UTF-8, or a number is not finite.
  Status check() const;
};

/// Where a session puts the advice.
struct AdviceBuffer {
  /// The advice in the session form of the SerDes `bitstream`: of a fixed advice its packed elements. A session
  /// reuses the memory, so that nothing is allocated for a fixed advice.
  std::vector<char> bytes;
  /// The natural logarithm of the probability with which it was chosen; absent in a session that does not explore.
  std::optional<float> log_probability;
};

/// One compilation's conversation, bound to one policy version. For one thread at a time.
class Session {
public:
  virtual ~Session() = default;

  /// The session's id and policy version. Unimplemented where the channel does not carry them (`pipe:`).
  virtual Result<SessionInfo> info() const = 0;

  /// Evaluate the policy on one observation.
  ///
  /// `step` is 1 for the first observation of the session, then one more each time; a failed step may be repeated
  /// while `is_open()`, and the policy is evaluated only once for it. `observation` holds the features in the session
  /// form of the SerDes `bitstream`, in the signature's order, and is not kept.
  ///
  /// Any error but one that leaves `is_open()` true ends the session. FailedPrecondition: it was over before.
  virtual Status evaluate(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) = 0;

  /// Set the signature of the following observations, which may be of another kind of decision; it has passed its check.
  /// It travels with the next of them. Unimplemented where the channel has one signature.
  virtual Status bind(const Signature &signature);

  /// Say that the following observations belong to the function (or module) `name`. It travels with the next of them.
  virtual Status set_context(std::string_view name) = 0;

  /// Report the outcome of the compilation. Ok: the ledger holds it and every decision of the session. A later report
  /// adds to it. Unimplemented where the server keeps no ledger, or the channel carries no outcomes.
  virtual Status report(const Outcome &outcome) = 0;

  /// Ask for the bytes of a form in `SessionInfo::forms`, once for each. Unimplemented where the channel carries none.
  virtual Result<std::string> form(const FormReference &form);

  /// The form of a digest, if another thread has read it ahead, or why it could not; nothing if none has.
  virtual std::optional<Result<std::optional<Form>>> form_ahead(const std::string &digest);

  /// Report `count` decisions, 1 to `most_decided`, that this client made by a form: `payload` holds their observations
  /// in the session form of the SerDes `bitstream`, one after the other, then their advices, and in a session that
  /// explores the logarithms of their probabilities, as floats. They are sent together with later messages, at the latest
  /// with `report` or `close`. Unimplemented where the channel carries no forms.
  virtual Status decided(std::uint32_t count, std::chrono::nanoseconds time, std::string_view payload);

  /// Report the outcome and end the session, in one exchange where the server makes no decisions. Ok: the ledger holds all
  /// of it, the end too if it is in the exchange. Nothing but its time-out ends the wait. Errors as of `report`.
  virtual Status conclude(const Outcome &outcome);

  /// End the session, and wait until its record is kept, its end included. Where the channel carries no decisions of the
  /// client it is closed at once.
  virtual Status finish();

  /// Send the record of an earlier session that this server has not acknowledged, in the form of proto/SOCKET.md, and wait
  /// at most `timeout` until it has. Unavailable: it takes it later. Unimplemented where the channel carries none.
  virtual Status send_record(std::string_view record, std::chrono::microseconds timeout);

  /// The server's address, by which its records are found; empty where the channel carries none.
  virtual std::string server() const { return {}; }

  /// Wait on even if `ConnectOptions::interrupts` become readable, which saves a system call for each decision.
  virtual void disregard_interrupts() noexcept {}

  /// Limit of the decisions in one report.
  static constexpr std::uint32_t most_decided = 1024;

  /// Whether the session can still evaluate.
  virtual bool is_open() const noexcept = 0;

  /// End the session. A second call does nothing; the destructor ends the session too.
  virtual void close() noexcept = 0;

protected:
  Session() = default;
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;
};

} // namespace policybridge

#endif

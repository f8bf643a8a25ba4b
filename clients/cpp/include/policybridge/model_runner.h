#ifndef POLICYBRIDGE_MODEL_RUNNER_H
#define POLICYBRIDGE_MODEL_RUNNER_H

#include "policybridge/connection.h"
#include "policybridge/session.h"
#include "policybridge/status.h"
#include "policybridge/tensor.h"
#include "policybridge/tensor_spec.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

/// Called where there is no advice: sets `advice` by the compiler's own heuristic. `why` is the failure; once the
/// session has ended, the failure that ended it. `evaluate` returns an error that this function returns.
using Fallback = std::function<Status(const Status &why, Tensor &advice)>;

/// How a runner handles failures.
struct RunnerOptions {
  /// With a fallback, no failure of the server ends a compilation: opening succeeds without a server, and the fallback
  /// decides where the policy cannot, which is counted. Without a fallback, the failure is returned.
  Fallback fallback;
  /// How often to retry opening where the server is unavailable, and a decision where the session is still open after
  /// the failure (`Session::is_open`); a decision is retried under the same step.
  unsigned retries = 1;
  /// The pause before the first retry; it doubles with each retry.
  std::chrono::microseconds pause = std::chrono::milliseconds(10);
  /// Whether to replace a session that is lost because the server is unavailable by a new one on the same version,
  /// which then takes the current decision. Only for policies without a memory: the new session starts empty, and the
  /// ledger holds two sessions.
  bool reopen = false;
};

/// Counts of a runner.
struct RunnerCounts {
  std::uint64_t decisions = 0; ///< answered by the policy
  std::uint64_t fallbacks = 0; ///< decided by the fallback
  std::uint64_t retries = 0;   ///< requests that were repeated
  std::uint64_t reopened = 0;  ///< sessions opened after the first
};

/// A policy on a server, used as LLVM uses a model (llvm/Analysis/MLModelRunner.h): features set in place, one decision
/// for each `evaluate`, which leaves them as they are. Features that the policy does not know are ignored. One runner
/// per thread; runners in several threads may share a connection.
class ModelRunner {
public:
  /// Open a session for the features, in the order of their indices, and the advice.
  ///
  /// InvalidArgument or ResourceExhausted: the specs or options are wrong in themselves. Else as `Connection::open`,
  /// unless there is a fallback.
  static Result<std::unique_ptr<ModelRunner>> open(std::shared_ptr<Connection> connection, OpenOptions options,
                                                   std::vector<TensorSpec> features, TensorSpec advice,
                                                   RunnerOptions runner_options = {});

  /// The same on a connection of its own; `policy` as `PolicyReference::parse` reads it.
  static Result<std::unique_ptr<ModelRunner>> open(std::string_view address, std::string_view policy,
                                                   std::vector<TensorSpec> features, TensorSpec advice,
                                                   const ConnectOptions &connect_options = {},
                                                   RunnerOptions runner_options = {});

  ~ModelRunner();
  ModelRunner(const ModelRunner &) = delete;
  ModelRunner &operator=(const ModelRunner &) = delete;

  std::size_t feature_count() const noexcept { return features_.size(); }
  const TensorSpec &advice_spec() const noexcept { return advice_.spec(); }

  /// The index of the feature of that name.
  std::optional<std::size_t> index_of(std::string_view name) const noexcept;

  /// The elements of the fixed feature `index`, at the same address for the runner's whole life. Null where there is no
  /// such feature, `T` is not its type, or it varies in size.
  template <class T> T *feature(std::size_t index) noexcept {
    if (index >= features_.size() || !features_[index].spec().is_fixed())
      return nullptr;
    return features_[index].template data<T>();
  }

  /// The feature `index` with its spec and shape, null where there is none: the way for features that vary in size and
  /// for texts (`Tensor::set`, `Tensor::set_texts`), and for types that are known at run time only.
  Tensor *tensor(std::size_t index) noexcept { return index < features_.size() ? &features_[index] : nullptr; }
  const Tensor *tensor(std::size_t index) const noexcept {
    return index < features_.size() ? &features_[index] : nullptr;
  }

  /// Evaluate the policy on the features as they are. The advice belongs to the runner and is valid until the next
  /// call. After an error that ended the session, every further call is FailedPrecondition with the first error in its
  /// message, or uses the fallback at once.
  Result<const Tensor *> evaluate();

  /// Whether an advice is one element of that type. InvalidArgument: it is of another type, or has more elements or a
  /// size that varies.
  Status check_scalar(ElementType type) const;

  /// Evaluate the policy where the advice is one element. InvalidArgument, before anything is sent: the advice is of
  /// another type, or has more elements or a size that varies.
  template <class T> Result<T> evaluate() {
    if (Status fits = check_scalar(element_type_of<T>()); !fits.ok())
      return fits;
    Result<const Tensor *> advice = evaluate();
    if (!advice.ok())
      return advice.status();
    return *(*advice)->template data<T>();
  }

  /// The natural logarithm of the probability with which the last advice was chosen; absent in a session that does not
  /// explore, and for an advice of the fallback.
  std::optional<float> log_probability() const noexcept { return buffer_.log_probability; }

  /// Set the features and the advice of the following decisions, which may be of another kind; the session stays, and
  /// `feature` and `tensor` give new memory.
  ///
  /// InvalidArgument or ResourceExhausted: the specs are wrong in themselves. Unimplemented: as `Session::bind`. If they
  /// do not fit the policy, the next decision fails.
  Status bind(std::vector<TensorSpec> features, TensorSpec advice);

  /// Say that the following decisions belong to the function (or module) `name`.
  Status set_context(std::string_view name);

  /// Report the outcome of the compilation. Ok: the ledger holds it and every decision of this session.
  /// Unimplemented: the server keeps no ledger, or the channel carries no outcomes. The fallback does not hide these
  /// errors.
  Status report_outcome(const Outcome &outcome);

  /// Report the outcome and end the session: one exchange instead of two where decisions are made here.
  Status conclude(const Outcome &outcome);

  /// The exact version that answers, and the session's id. Unimplemented where the channel does not carry them; where
  /// there is no session, the status with which opening failed.
  Result<SessionInfo> session() const;
  Result<PolicyVersion> policy() const;

  /// Ok while the policy decides; else why it no longer does.
  const Status &status() const noexcept { return over_; }
  const RunnerCounts &counts() const noexcept { return counts_; }

  /// End the session.
  void close() noexcept;

private:
  ModelRunner(std::shared_ptr<Connection> connection, OpenOptions options, Signature signature, RunnerOptions runner);
  void lay_out();
  Status start();
  Status request();
  Status request_once();
  Status retry(Status failed);
  Status reopen();
  Status observe(std::string_view &observation);
  Status decode();
  Result<const Tensor *> fall_back(const Status &why);

  std::shared_ptr<Connection> connection_;
  std::unique_ptr<Session> session_;
  OpenOptions options_;
  Signature signature_;
  RunnerOptions runner_;
  std::vector<std::uint64_t> arena_; // all fixed features, each aligned; of words for the alignment
  std::vector<Tensor> features_;
  Tensor advice_;
  bool packed_ = false; // whether the arena's bytes are the observation's, without copying
  std::size_t packed_size_ = 0;
  std::vector<char> observation_;
  AdviceBuffer buffer_;
  std::uint64_t step_ = 0;
  Status over_;
  RunnerCounts counts_;
};

} // namespace policybridge

#endif

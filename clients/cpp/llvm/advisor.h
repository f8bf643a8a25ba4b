#ifndef POLICYBRIDGE_LLVM_ADVISOR_H
#define POLICYBRIDGE_LLVM_ADVISOR_H

#include "module_report.h"
#include "settings.h"

#include "policybridge/policybridge.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace policybridge::plugin {

/// A feature, with the memory that LLVM writes its value to.
struct Feature {
  Feature(TensorSpec own, std::vector<std::uint64_t> memory)
      : spec(std::move(own)), words(std::move(memory)), bytes(static_cast<std::size_t>(spec.byte_size())) {}

  TensorSpec spec;
  std::vector<std::uint64_t> words; ///< of 64 bits, so that they are aligned for every element type
  std::size_t bytes;                ///< of the value
};

/// The specs of features, in their order.
std::vector<TensorSpec> specs_of(llvm::ArrayRef<Feature> features);

/// The kinds of decisions, which are the names of the advice.
inline constexpr const char *inlining = "inlining_decision";
inline constexpr const char *pass_choice = "pass_choice";

/// Advises LLVM about one module by the policy. After a failure LLVM's own decisions stand in, and are counted.
class Advisor {
public:
  virtual ~Advisor() = default;

  /// Whether the policy can decide. Reaches for it, if that has not been done; where it cannot be reached, that is the
  /// failure after which LLVM decides.
  virtual bool is_ready() { return report_.statistics.failure.ok(); }

  /// Whether the policy can make decisions of this kind, as far as this is known before it is open.
  virtual bool may_decide(const char *) const { return true; }

  /// Decide whether to inline a call; `own` is LLVM's own decision. The specs are the same each time.
  bool decide(llvm::ArrayRef<Feature> features, bool own);

  /// Whether the policy chooses passes. Begins the session if that has not been done.
  bool chooses_passes(llvm::ArrayRef<Feature> features);

  /// Choose the passes of a function: a number of `pass_alternatives`; `chooses_passes` is true. Without advice it is 0,
  /// which keeps LLVM's own.
  std::size_t choose_passes(llvm::StringRef function, llvm::ArrayRef<Feature> features);

  /// End the module's session, report its outcome if there is a ledger, and then call `then`; perhaps in another thread,
  /// while LLVM goes on.
  virtual void finish(std::function<void()> then) { then(); }

  ModuleReport &report() { return report_; }

protected:
  /// Begin, before the first decision, which is of this kind and has these features.
  virtual Status open(const char *kind, llvm::ArrayRef<Feature> features) = 0;
  /// Let the decisions from here on be of this kind, each with features of these specs.
  virtual Status turn_to(const char *, llvm::ArrayRef<Feature>) { return unimplemented("only inlining is decided"); }
  /// Whether the policy, which is open, makes decisions of this kind.
  virtual bool decides(const char *kind) const { return llvm::StringRef(kind) == inlining; }
  /// Name the function that the next decision is about.
  virtual Status set_context(llvm::StringRef) { return {}; }
  /// End the session, which nothing was asked in, without a trace.
  virtual void forget() {}
  /// Decide.
  virtual Result<std::int64_t> evaluate(llvm::ArrayRef<Feature> features) = 0;
  /// Note the failure after which LLVM decides.
  virtual void fail(Status failure) { report_.statistics.failure = std::move(failure); }

private:
  bool begin(const char *kind, llvm::ArrayRef<Feature> features);
  Result<std::size_t> advised_passes(llvm::StringRef function, llvm::ArrayRef<Feature> features);
  Result<std::int64_t> ask(const char *kind, llvm::ArrayRef<Feature> features);

  const char *kind_ = nullptr; // of the decisions that the session is ready for; null: there is no session
  ModuleReport report_;
};

/// Prepare to be asked about this module; the other arguments are those of `make_advisor`.
void expect_module(const Settings &settings, std::string module, std::map<std::string, std::string> labels);

/// Make the advisor of this plugin: by a server, or by the policy that is linked into it. `module` is its name, `labels`
/// are those of its session besides the settings' ones.
std::unique_ptr<Advisor> make_advisor(const Settings &settings, std::string module,
                                      std::map<std::string, std::string> labels);

} // namespace policybridge::plugin

#endif

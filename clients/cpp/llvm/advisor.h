#ifndef POLICYBRIDGE_LLVM_ADVISOR_H
#define POLICYBRIDGE_LLVM_ADVISOR_H

#include "module_report.h"
#include "settings.h"

#include "policybridge/policybridge.h"

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace policybridge::plugin {

/// A feature, with the memory that LLVM writes its value to.
struct Feature {
  TensorSpec spec;
  std::vector<std::uint64_t> words; ///< of 64 bits, so that they are aligned for every element type
};

/// The specs of features, in their order.
std::vector<TensorSpec> specs_of(llvm::ArrayRef<Feature> features);

/// Advises LLVM about one module by the policy. After a failure LLVM's own decisions stand in, and are counted.
class Advisor {
public:
  virtual ~Advisor() = default;

  /// Whether the policy can decide. Reaches for it, if that has not been done; where it cannot be reached, that is the
  /// failure after which LLVM decides.
  virtual bool is_ready() { return report_.statistics.failure.ok(); }

  /// Decide whether to inline a call; `own` is LLVM's own decision. The specs are the same each time.
  bool decide(llvm::ArrayRef<Feature> features, bool own);

  /// End the module's session, and report its outcome if there is a ledger.
  virtual void finish() {}

  ModuleReport &report() { return report_; }

protected:
  /// Begin, before the first decision; the features of each decision have these specs.
  virtual Status open(llvm::ArrayRef<Feature> features) = 0;
  /// Decide; LLVM takes any value but 0 for "inline".
  virtual Result<std::int64_t> evaluate(llvm::ArrayRef<Feature> features) = 0;
  /// Note the failure after which LLVM decides.
  virtual void fail(Status failure) { report_.statistics.failure = std::move(failure); }

private:
  bool is_open_ = false;
  ModuleReport report_;
};

/// Make the advisor of this plugin: by a server, or by the policy that is linked into it. `module` is its name.
std::unique_ptr<Advisor> make_advisor(const Settings &settings, std::string module);

} // namespace policybridge::plugin

#endif

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

/// One of LLVM's features, with the memory that LLVM writes its value to.
struct Feature {
  TensorSpec spec;
  std::vector<std::uint64_t> words; ///< of 64 bits, so that they are aligned for every element type
};

/// Advises LLVM about one module by the policy. After a failure LLVM's own decisions stand in, and are counted.
class Advisor {
public:
  /// Nothing is sent before the first decision. `module` is the session's context.
  Advisor(const Settings &settings, std::string module) : settings_(settings), module_(std::move(module)) {}

  /// Whether the policy can decide. Connects to the server if that has not been done; where the server cannot be
  /// reached, that is the failure after which LLVM decides.
  bool connect_to_server();

  /// Decide whether to inline a call. The last feature is LLVM's own decision, an int64. The specs are the same each
  /// time.
  bool decide(llvm::ArrayRef<Feature> features);

  /// Report the outcome to the ledger, if there is a session, and end the session.
  void finish();

  ModuleReport &report() { return report_; }

private:
  Status reach();
  Status open(llvm::ArrayRef<Feature> features);
  Result<bool> evaluate(llvm::ArrayRef<Feature> features);

  const Settings &settings_;
  const std::string module_;
  std::shared_ptr<Connection> connection_;
  std::unique_ptr<ModelRunner> runner_;
  ModuleReport report_;
};

} // namespace policybridge::plugin

#endif

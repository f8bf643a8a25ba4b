#ifndef POLICYBRIDGE_LLVM_ASKER_H
#define POLICYBRIDGE_LLVM_ASKER_H

#include "settings.h"
#include "statistics.h"

#include "policybridge/policybridge.h"

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace policybridge::plugin {

/// One of LLVM's features, into whose words LLVM writes; of words for the alignment.
struct Feature {
  TensorSpec spec;
  std::vector<std::uint64_t> words;
};

/// Asks the policy about one module. Once there is no advice, LLVM's own decisions stand in, and are counted.
class Asker {
public:
  /// Nothing is sent before the first decision. `module` is the session's context.
  Asker(const Settings &settings, std::string module) : settings_(settings), module_(std::move(module)) {}

  /// Whether there is anybody to ask, as far as is known: a server that cannot be reached is a failure.
  bool can_ask();

  /// Decide whether to inline a call. The last feature is what LLVM would do by itself, int64. The specs are the same
  /// each time.
  bool decide(llvm::ArrayRef<Feature> features);

  /// Tell the ledger what came of it, if there is a session, and end that.
  void finish();

  Statistics &statistics() { return statistics_; }

private:
  Status reach();
  Status open(llvm::ArrayRef<Feature> features);
  bool ask(llvm::ArrayRef<Feature> features);

  const Settings &settings_;
  const std::string module_;
  std::shared_ptr<Connection> connection_;
  std::unique_ptr<ModelRunner> runner_;
  Statistics statistics_;
};

} // namespace policybridge::plugin

#endif

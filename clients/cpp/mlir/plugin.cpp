// The pass `policybridge-tile` for a stock mlir-opt: a policy chooses the tile of each linalg operation, loop by loop.

#include "module_tiling.h"

#include "../llvm/host_version.h"

#include "mlir/Pass/Pass.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/Config/llvm-config.h"

using namespace mlir;

namespace policybridge::plugin {
namespace {

class TilePass final : public PassWrapper<TilePass, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(TilePass)

  TilePass() = default;
  TilePass(const TilePass &other) : PassWrapper(other) {}

  StringRef getArgument() const override { return "policybridge-tile"; }
  StringRef getDescription() const override {
    return "Tile linalg operations of static shape by the sizes that a policy chooses";
  }

  void getDependentDialects(DialectRegistry &registry) const override { register_dialects(registry); }

  void runOnOperation() override {
    const PassOptions source(*this);
    Settings settings;
    const Status tiles = settings.read_tiles(source, {sizes_.begin(), sizes_.end()}, {default_.begin(), default_.end()});
    if (!tiles.ok()) {
      // Without a default there is nothing to fall back to.
      emitError(getOperation().getLoc(), "policybridge: " + tiles.message());
      return signalPassFailure();
    }
    Status invalid = has_own_policy() ? Status() : settings.read_server(source);
    if (failed(ModuleTiling(getOperation(), settings, std::move(invalid)).run()))
      signalPassFailure();
  }

private:
  using Text = Pass::Option<std::string>;
  using Numbers = Pass::ListOption<std::int64_t>;
  using Texts = Pass::ListOption<std::string>;

  /// The options of the pass, as `{server=… label=…}` has them.
  class PassOptions final : public SettingsSource {
  public:
    explicit PassOptions(const TilePass &pass) : pass_(pass) {}

    std::optional<std::string> written(std::string_view name) const override {
      for (const Text *option : {&pass_.server_, &pass_.policy_, &pass_.timeout_, &pass_.retry_after_, &pass_.fallback_,
                                 &pass_.stats_, &pass_.explore_, &pass_.evaluate_, &pass_.spool_})
        if (option->ArgStr == StringRef(name) && option->hasValue())
          return option->getValue();
      return std::nullopt;
    }

    std::vector<std::string> all_written(std::string_view name) const override {
      const Texts &list = name == "option" ? pass_.options_ : pass_.labels_;
      return {list.begin(), list.end()};
    }

    std::string spelled(std::string_view name) const override { return "the option " + std::string(name); }

  private:
    const TilePass &pass_;
  };

  Numbers sizes_{*this, "sizes", llvm::cl::desc("The tile sizes of the policy; 0 is not to tile (0,4,8,16,32,64)")};
  Numbers default_{*this, "default",
                   llvm::cl::desc("The tile without a policy: a size for each loop, the last for all further ones (0)")};
  Text server_{*this, "server", llvm::cl::desc("Where the policy server listens: socket:PATH")};
  Text policy_{*this, "policy", llvm::cl::desc("The policy that decides: NAME, NAME@VERSION, NAME@ALIAS")};
  Text timeout_{*this, "timeout", llvm::cl::desc("Seconds for each wait for the server (10)")};
  Text retry_after_{*this, "retry-after",
                    llvm::cl::desc("How long others need not wait for a server that did not answer in time (60)")};
  Text fallback_{*this, "fallback", llvm::cl::desc("Without advice: the default tile (default), or error")};
  Text stats_{*this, "stats",
              llvm::cl::desc("Write counts and latencies there; %p becomes the process id, %m the module")};
  Text evaluate_{*this, "evaluate", llvm::cl::desc("Where decisions are made: auto (default), there or here")};
  Text spool_{*this, "spool",
              llvm::cl::desc("Whether to keep on disk what a server that went away has not recorded: 1 (default) or 0")};
  Text explore_{*this, "explore", llvm::cl::desc("Depart from the best advice: temperature=T,epsilon=E,seed=S")};
  Texts options_{*this, "option", llvm::cl::desc("NAME=VALUE for the policy to read")};
  Texts labels_{*this, "label", llvm::cl::desc("NAME=VALUE to find the session by")};
};

} // namespace
} // namespace policybridge::plugin

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo mlirGetPassPluginInfo() {
  if (!policybridge::plugin::is_right_host("policybridge-mlir"))
    return {policybridge::plugin::refused_api_version, "policybridge-mlir", LLVM_VERSION_STRING, nullptr};
  return {MLIR_PLUGIN_API_VERSION, "policybridge-mlir", policybridge::plugin::plugin_version(),
          [] { PassRegistration<policybridge::plugin::TilePass>(); }};
}

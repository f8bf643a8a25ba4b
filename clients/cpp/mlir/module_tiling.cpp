#include "module_tiling.h"

#include "telling.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"

#include <algorithm>

using namespace mlir;

namespace policybridge::plugin {
namespace {

/// The file that the module was read from.
std::string name_of_module(ModuleOp module) {
  std::string name = "-";
  module.getLoc()->walk([&name](Location location) {
    const auto file = dyn_cast<FileLineColRange>(location);
    if (!file)
      return WalkResult::advance();
    name = file.getFilename().str();
    return WalkResult::interrupt();
  });
  return name;
}

bool is_tiled(const Tile &tile) {
  return std::any_of(tile.begin(), tile.end(), [](std::int64_t size) { return size != 0; });
}

} // namespace

ModuleTiling::ModuleTiling(ModuleOp module, const Settings &settings, Status invalid)
    : module_(module), settings_(settings), name_(name_of_module(module)), advisor_(make_advisor(settings, name_)) {
  statistics().failure = std::move(invalid);
}

LogicalResult ModuleTiling::run() {
  const std::vector<Nest> nests = nests_of(module_);
  std::vector<Tile> tiles;
  for (const Nest &nest : nests) {
    tiles.push_back(decide(nest));
    const Status &failure = statistics().failure;
    // A policy that is not for this compiler is no fault: the default tile stands in, and it is told.
    fatal_ = !failure.ok() && failure.code() != StatusCode::OutOfRange && !settings_.default_stands_in;
    if (fatal_)
      return report(), emitError(module_.getLoc(), "policybridge: no advice: " + statistics().failure.message());
  }
  for (std::size_t index = 0; index < nests.size(); ++index) {
    tiled_ += is_tiled(tiles[index]);
    if (failed(tile(nests[index], tiles[index])))
      return emitError(module_.getLoc(), "policybridge: " + nests[index].site + " cannot be tiled");
  }
  return report(), success();
}

/// The advised tile, or the default for all loops where one of them has no advice.
Tile ModuleTiling::decide(const Nest &nest) {
  if (statistics().failure.ok()) {
    Result<Tile> advised = ask(nest);
    if (advised.ok())
      return *advised;
    advisor_->fail(advised.status());
  }
  Tile tile;
  for (std::size_t loop = 0; loop < nest.loops(); ++loop) {
    const auto place = static_cast<std::size_t>(settings_.default_of(loop));
    tile.push_back(nest.effective(loop, settings_.sizes[place]));
    statistics().defaults += is_asked(nest, loop);
  }
  return tile;
}

/// Each size would leave a loop as it is that is not longer than the smallest one.
bool ModuleTiling::is_asked(const Nest &nest, std::size_t loop) const {
  return nest.question.extents[loop] > settings_.sizes[1];
}

Result<Tile> ModuleTiling::ask(const Nest &nest) {
  Tile tile;
  for (std::size_t loop = 0; loop < nest.loops(); ++loop) {
    if (!is_asked(nest, loop)) {
      tile.push_back(0);
      continue;
    }
    if (Status status = begin(); !status.ok())
      return status;
    if (Status status = advisor_->set_site(nest.site); !status.ok())
      return status;
    Question question = nest.about(loop, tile);
    question.usual = settings_.default_of(loop);
    const Result<std::int64_t> advised = place(question);
    if (!advised.ok())
      return advised.status();
    tile.push_back(nest.effective(loop, settings_.sizes[static_cast<std::size_t>(*advised)]));
  }
  return tile;
}

/// The policy's advice, which is a place in the list.
Result<std::int64_t> ModuleTiling::place(const Question &question) {
  const auto begun = std::chrono::steady_clock::now();
  Result<std::int64_t> advice = advisor_->ask(question);
  if (!advice.ok())
    return advice;
  const auto count = static_cast<std::int64_t>(settings_.sizes.size());
  if (*advice < 0 || *advice >= count)
    return internal_error("the policy advises size " + std::to_string(*advice) + " of " + std::to_string(count) +
                          "; it is to be 0 to " + std::to_string(count - 1));
  statistics().count(*advice, std::chrono::steady_clock::now() - begun);
  return advice;
}

Status ModuleTiling::begin() {
  if (is_open_)
    return Status();
  Status status = advisor_->open();
  is_open_ = status.ok();
  return status;
}

void ModuleTiling::report() {
  const Statistics &counted = statistics();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  advisor_->finish({{{"asked", static_cast<double>(counted.decisions)},
                     {"defaults", static_cast<double>(counted.defaults)},
                     {"tiled", static_cast<double>(tiled_)},
                     {"seconds", seconds}},
                    "ok"});
  if (!counted.failure.ok() && !fatal_)
    tell_defaults(counted, "the default tile");
  CompilationReport report;
  report.statistics = counted;
  report.seconds = seconds;
  write_statistics(settings_.stats, name_, "tile", fatal_, std::move(report));
}

} // namespace policybridge::plugin

#include "unit_session.h"

#include "guard.h"
#include "sha256.h"
#include "telling.h"
#include "utf8.h"

#include <algorithm>

namespace policybridge::plugin {
namespace {

using Clock = std::chrono::steady_clock;

/// Instructions that count as seen from the start, so that a small file may be unrolled too.
constexpr double seen_at_least = 1000;

constexpr std::size_t mask_index = feature_count;

std::vector<TensorSpec> feature_specs() {
  std::vector<TensorSpec> specs;
  for (const char *name : feature_names)
    specs.push_back(TensorSpec::of<std::int64_t>(name));
  specs.push_back(TensorSpec::of<std::int8_t>("mask", {most_copies + 1}));
  return specs;
}

/// The decisions have their functions as contexts, so the source file is a label, too.
Settings with_source(Settings settings, const std::string &source) {
  // The names of files and of functions may hold any bytes.
  settings.labels.insert({"source", valid_utf8(source)});
  return settings;
}

} // namespace

UnitSession::UnitSession(Settings settings, Status failure, std::string source, std::string compiler,
                         std::map<std::string, std::string> labels)
    : settings_(with_source(std::move(settings), source)), source_(std::move(source)), begun_(Clock::now()),
      session_(settings_, valid_utf8(source_), std::move(compiler), std::move(labels)) {
  statistics_.failure = std::move(failure);
}

Status UnitSession::open() {
  if (Status reached = session_.reach(); !reached.ok())
    return reached;
  return session_.open(feature_specs(), "unrolling", statistics_);
}

Result<std::int64_t> UnitSession::ask(const Loop &loop) {
  ModelRunner &runner = session_.runner();
  const std::string function = valid_utf8(loop.function);
  if (function != function_) {
    if (Status status = runner.set_context(function); !status.ok())
      return status;
    function_ = function;
  }
  for (std::size_t index = 0; index < feature_count; ++index)
    *runner.feature<std::int64_t>(index) = loop.features[index];
  *runner.feature<std::int64_t>(site) =
      static_cast<std::int64_t>(sha256_head(loop.function + '\n' + std::to_string(loop.ordinal)));
  *runner.feature<std::int64_t>(function_hash) = static_cast<std::int64_t>(sha256_head(loop.function));
  std::copy(loop.mask.begin(), loop.mask.end(), runner.feature<std::int8_t>(mask_index));
  const auto begun = Clock::now();
  Result<std::int64_t> advice = session_.evaluate();
  if (advice.ok())
    statistics_.count(*advice, Clock::now() - begun);
  return advice;
}

Result<std::size_t> UnitSession::checked(const Loop &loop, std::int64_t advice) {
  const std::int64_t own = loop.features[unrolling_default];
  if (advice == 0 || advice == own)
    return std::size_t{0};
  const auto copies = static_cast<std::size_t>(advice);
  if (copies > most_copies || !loop.mask[copies])
    return internal_error("the policy advises " + std::to_string(advice) +
                          " copies of a loop, which its mask does not allow");
  ++departures_;
  const auto more = static_cast<double>(copies) - static_cast<double>(own);
  added_ += std::max(0.0, more * static_cast<double>(loop.features[instructions]));
  return copies;
}

void UnitSession::fail(Status failure) {
  session_.fail(failure);
  statistics_.failure = std::move(failure);
}

std::size_t UnitSession::decide(const Loop &loop) noexcept {
  if (added_ > settings_.growth_limit * (seen_at_least + seen_)) {
    ++statistics_.limited;
    return 0;
  }
  const auto attempt = [&]() -> Result<std::size_t> {
    if (!session_.is_open())
      if (Status status = open(); !status.ok())
        return status;
    const Result<std::int64_t> advice = ask(loop);
    return advice.ok() ? checked(loop, *advice) : Result<std::size_t>(advice.status());
  };
  if (statistics_.failure.ok()) {
    const Result<std::size_t> copies = guarded(attempt);
    if (copies.ok())
      return *copies;
    fail(copies.status());
  }
  ++statistics_.defaults;
  return 0;
}

void UnitSession::count_final_instructions(const std::string &function, std::size_t count) noexcept {
  (void)guarded([&]() -> Status {
    if (const std::string name = valid_utf8(function); name == function_)
      final_instructions_[name] = static_cast<double>(count);
    return {};
  });
}

Status UnitSession::take_error() noexcept {
  const Status &failure = statistics_.failure;
  // A policy that is not for such a unit is no fault: GCC decides, and it is told.
  if (failure.ok() || failure.code() == StatusCode::OutOfRange || settings_.default_stands_in || told_error_)
    return {};
  told_error_ = true;
  return statistics_.failure;
}

Outcome UnitSession::outcome() const {
  const char *status = statistics_.failure.ok() ? "ok" : told_error_ ? "error" : "fallback";
  Outcome outcome{{{"asked", static_cast<double>(statistics_.decisions)},
                   {"defaults", static_cast<double>(statistics_.defaults)},
                   {"limited", static_cast<double>(statistics_.limited)},
                   {"departures", static_cast<double>(departures_)},
                   {"seconds", std::chrono::duration<double>(Clock::now() - begun_).count()}},
                  status};
  for (const auto &[function, count] : final_instructions_)
    outcome.contexts[function]["instructions"] = count;
  return outcome;
}

void UnitSession::finish() noexcept {
  (void)guarded([&]() -> Status {
    if (session_.is_open())
      session_.finish(outcome());
    // Not by warnings of GCC's, which -Werror would make errors.
    if (statistics_.defaults && !told_error_)
      tell_defaults(statistics_);
    tell_limited(statistics_, settings_.growth_limit, "the functions' instructions");
    CompilationReport report;
    report.statistics = statistics_;
    report.seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
    write_statistics(settings_.stats, source_, "unroll", told_error_, std::move(report));
    return {};
  });
}

} // namespace policybridge::plugin

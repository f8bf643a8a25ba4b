#include "module_passes.h"

#include "module_names.h"
#include "sha256.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace policybridge::plugin {
namespace {

using Action = PassChoice::Action;
using Stage = KnownPass::Stage;

/// Whether LLVM means a pass by a name; LLVM 19 calls the passes of code generation by their titles.
bool is_called(const KnownPass &pass, Stage stage, StringRef name) {
  const std::string_view asked(name.data(), name.size());
  return pass.stage == stage && (pass.name == asked || (stage == Stage::codegen && pass.title == asked));
}

bool is_for_codegen(const PassChoice &choice) {
  return choice.option || (choice.pass && choice.pass->stage == Stage::codegen);
}

bool sets_allocator(const PassChoice &choice) {
  return choice.action == Action::set && choice.option->pass == register_allocation;
}

} // namespace

ModulePasses::ModulePasses(std::vector<PassChoice> choices, std::unique_ptr<PassLog> log) : log_(std::move(log)) {
  for (PassChoice &choice : choices) {
    const KnownPass *pass = choice.option ? find_pass(choice.option->pass) : choice.pass;
    rows_.push_back({std::move(choice), pass});
  }
  for (Row &row : rows_)
    by_function_[row.choice.function].push_back(&row);
}

/// The choices for all functions, but for those from which this one is exempt, and then its own.
std::vector<ModulePasses::Row *> ModulePasses::rows_for(std::uint64_t function) {
  const auto own = by_function_.find(function);
  const auto all = by_function_.find(all_functions);
  std::vector<Row *> rows;
  const auto keeps = [&](Row *kept) {
    const bool found = own != by_function_.end() && any_of(own->second, [kept](Row *row) {
      return row->choice.action == Action::keep && row->choice.name == kept->choice.name && (row->applied = true);
    });
    return found;
  };
  if (all != by_function_.end())
    copy_if(all->second, std::back_inserter(rows), [&](Row *row) { return !keeps(row); });
  if (own != by_function_.end())
    append_range(rows, own->second);
  return rows;
}

ModulePasses::OfFunction &ModulePasses::choices_of(StringRef function) {
  if (!last_ || last_->getKey() != function) {
    const auto [at, is_new] = functions_.try_emplace(function);
    if (is_new)
      at->second.rows = rows_for(sha256_head(std::string_view(lasting_name(function))));
    last_ = &*at;
  }
  return last_->getValue();
}

bool ModulePasses::should_run(Stage stage, StringRef function, StringRef name) {
  if (rows_.empty())
    return true;
  OfFunction &chosen = choices_of(function);
  std::optional<unsigned> nth;
  bool runs = true;
  for (Row *row : chosen.rows) {
    if (row->choice.action != Action::skip || !is_called(*row->pass, stage, name))
      continue;
    if (!nth)
      nth = chosen.runs[row->pass]++;
    if (row->choice.nth.value_or(*nth) != *nth)
      continue;
    row->applied = true;
    runs = false;
  }
  return runs;
}

std::vector<const KnownPipeline *> ModulePasses::added(StringRef function, PassChoice::Point point) {
  std::vector<const KnownPipeline *> pipelines;
  if (rows_.empty())
    return pipelines;
  for (Row *row : choices_of(function).rows) {
    const PassChoice &choice = row->choice;
    if (choice.action != Action::add || choice.point != point ||
        choice.pipeline->scope != KnownPipeline::Scope::function)
      continue;
    row->applied = true;
    pipelines.push_back(choice.pipeline);
  }
  llvm::sort(pipelines);
  pipelines.erase(llvm::unique(pipelines), pipelines.end());
  return pipelines;
}

std::vector<const KnownPipeline *> ModulePasses::added_to_module() {
  std::vector<const KnownPipeline *> pipelines;
  for (Row &row : rows_)
    if (row.choice.action == Action::add && row.choice.pipeline->scope == KnownPipeline::Scope::module) {
      row.applied = true;
      pipelines.push_back(row.choice.pipeline);
    }
  llvm::sort(pipelines);
  return pipelines;
}

bool ModulePasses::is_kept_from(StringRef function, const KnownPipeline &pipeline) {
  return any_of(choices_of(function).rows, [&](const Row *row) {
    return row->choice.action == Action::keep && row->choice.pipeline == &pipeline;
  });
}

ModulePasses::Switches ModulePasses::switches_for(StringRef function, StringRef pass) {
  Switches switches;
  for (const Row *row : choices_of(function).rows)
    if (row->choice.action == Action::set && row->pass && is_called(*row->pass, Stage::codegen, pass) &&
        !is_contained(switches, row->choice.option))
      switches.push_back(row->choice.option);
  return switches;
}

bool ModulePasses::chooses_allocators() const {
  return any_of(rows_, [](const Row &row) { return sets_allocator(row.choice); });
}

bool ModulePasses::is_allocated_basically(StringRef function) {
  return any_of(choices_of(function).rows, [](const Row *row) { return sets_allocator(row->choice); });
}

bool ModulePasses::is_asked_in_codegen() const {
  return log_ || any_of(rows_, [](const Row &row) { return is_for_codegen(row.choice); });
}

void ModulePasses::count_codegen(const Module &module, bool sets_switches) {
  if (rows_.empty())
    return;
  const auto is_made = [&](const Row &row) { return is_for_codegen(row.choice) && (sets_switches || !row.choice.option); };
  lacks_switches_ = !sets_switches && any_of(rows_, [](const Row &row) { return row.choice.option != nullptr; });
  for (const Function &function : module)
    if (!function.isDeclaration())
      for (Row *row : choices_of(function.getName()).rows)
        row->applied |= is_made(*row);
}

void ModulePasses::count_made(StringRef function, bool sets_switches) {
  for (Row *row : choices_of(function).rows)
    row->applied |= sets_switches || !row->choice.option;
}

std::size_t ModulePasses::applied() const {
  return static_cast<std::size_t>(count_if(rows_, [](const Row &row) { return row.applied; }));
}

} // namespace policybridge::plugin

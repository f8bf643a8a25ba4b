#ifndef POLICYBRIDGE_SRC_PASS_CHOICES_H
#define POLICYBRIDGE_SRC_PASS_CHOICES_H

#include "policybridge/span.h"
#include "policybridge/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

/// An optional pass of LLVM that may be skipped.
struct KnownPass {
  enum class Stage { ir, codegen };
  Stage stage;
  std::string_view name;
  std::string_view title; ///< what LLVM 19 calls a pass of code generation
};

/// Passes that may be added, to a function or to the module.
struct KnownPipeline {
  enum class Scope { function, module };
  Scope scope;
  std::string_view text; ///< as opt -passes= has it
};

/// The pass of a switch that register allocation reads, which is no optional pass.
inline constexpr std::string_view register_allocation = "register-allocation";

/// Options of LLVM that a pass of code generation reads for each function.
struct KnownSwitch {
  std::string_view name;
  std::string_view pass;
  std::string_view options; ///< with spaces between
};

/// The tables of pass_choices.def.
const KnownPass *find_pass(std::string_view name);
const KnownPass *find_pass_by_title(std::string_view title);
const KnownPipeline *find_pipeline(std::string_view text);
const KnownSwitch *find_switch(std::string_view name);

/// The function key of a choice for all functions of a module: the hash of the empty name.
inline constexpr std::uint64_t all_functions = 0xe3b0c44298fc1c14;

/// One choice about the passes of a function, or of all functions of a module.
struct PassChoice {
  enum class Action { skip, add, set, keep };
  enum class Point { early, last };

  /// Read a decision's second and third word: `skip PASS`, `skip PASS.N`, `add PIPELINE@early`, `add PIPELINE@last` and
  /// `set SWITCH`; `keep` with one of these third words exempts a function from the choice for all.
  ///
  /// InvalidArgument: the choice is not in the tables, or one that may never be made; the message says why.
  static Result<PassChoice> parse(std::uint64_t function, std::string_view action, std::string_view name);

  std::uint64_t function = all_functions; ///< the first 8 bytes of the SHA-256 of its name
  Action action = Action::skip;
  std::string name; ///< the third word
  const KnownPass *pass = nullptr;
  std::optional<unsigned> nth; ///< which run of the pass on the function, from 0; all without it
  const KnownPipeline *pipeline = nullptr;
  Point point = Point::early;
  const KnownSwitch *option = nullptr;

private:
  Status read_name();
  Status read_skipped();
  Status read_added();
  Status read_set();
};

/// An alternative of a policy for a function; the advice is its index in the table of pass_choices.def.
struct PassAlternative {
  std::string_view name;
  std::string_view choices; ///< actions and names, with " + " between; empty: everything stays as LLVM has it

  /// Its choices for a function.
  std::vector<PassChoice> of(std::uint64_t function) const;
};

Span<const PassAlternative> pass_alternatives();

/// Whether a word is the action of a choice about passes.
bool is_pass_action(std::string_view word);

} // namespace policybridge

#endif

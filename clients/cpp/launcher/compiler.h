#pragma once

#include "error.h"

#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

using Words = std::vector<std::string>;

/// How a compiler takes LLVM's flags.
enum class Kind { Clang, Zig, Opt, Llc };

/// A kind's name, as in messages.
std::string_view name_of(Kind kind);

/// A compiler's command, cut in two: what starts it (with any wrapper before it), and its arguments.
struct Compiler {
  Kind kind;
  Words start;
  Words arguments;

  /// Finds the compiler in a command; wrappers such as `ccache` may stand before it. InvalidArgument where no word
  /// before the first option names one.
  static Result<Compiler> of(const Words &command);

  /// The command as it was given.
  Words command() const;

  /// The command with LLVM's `flags`; those that the user gave himself stay as he gave them.
  Words with_flags(const Words &flags) const;

  /// Whether LLVM's own -Oz is asked for; zig turns its -Oz into -Os.
  bool size_level() const;

  /// Whether a second run gives what the first would have: nothing is taken from stdin or given to stdout.
  bool repeatable() const;
};

/// Whether a file of this name is a compiler, and no wrapper around one.
bool is_compiler(std::string_view name);

/// Whether these words are Python's that start `zig cc`: PYTHON -m ziglang cc.
bool is_python_zig(const Words &start);

} // namespace policybridge

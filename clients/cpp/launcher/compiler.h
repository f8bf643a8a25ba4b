#pragma once

#include "policybridge/status.h"
#include "process.h"

#include <map>
#include <string>
#include <string_view>

namespace policybridge {

/// How a compiler takes LLVM's flags.
enum class CompilerKind { Clang, Zig, Opt, Llc };

/// A kind's name, as in messages.
std::string_view name_of(CompilerKind kind);

/// Whether a command starts a whole build, which starts the compilers itself.
bool is_build(const Strings &command);

/// A compiler's command in two parts: the words that start it (with any wrapper before it), and its arguments.
struct Compiler {
  CompilerKind kind;
  Strings start;
  Strings arguments;

  /// Finds the compiler in a command; wrappers such as `ccache` may stand before it. InvalidArgument where no word
  /// before the first option names one.
  static Result<Compiler> of(const Strings &command);

  /// The command as it was given.
  Strings command() const;

  /// The command with LLVM's `flags`; a flag that the command has already stays as it is.
  Strings with_flags(const Strings &flags) const;

  /// The command with a plugin of LLVM's passes, and the plugin's options. `loads_early` is for LLVM before 22, whose
  /// clang reads the options before it loads such plugins: the plugin is loaded as one of clang's own, too.
  /// Where clang writes the list of the files that the object depends on, it adds the `dependency`.
  Strings with_plugin(const std::string &plugin, const Strings &options, bool loads_early,
                      const std::string &dependency = {}) const;

  /// Whether the command surely compiles alone, so that options of a plugin reach no other tool: LLVM's assembler and
  /// linker have not loaded the plugin, and refuse them.
  bool only_compiles() const;

  /// The level of the functions, as far as the command says it: Oz, Os, or O2 for all others; zig turns its -Oz into -Os.
  std::string level() const;

  /// Whether clang generates one module's code of a distributed ThinLTO build (`-fthinlto-index`); with an empty index it
  /// compiles as usual.
  bool is_thinlto_backend() const;

  /// The labels that a policy's scope is compared with: `level`, and `phase` (compile, pre-link or link); none where opt
  /// or llc runs, or a response file may hold the options.
  std::map<std::string, std::string> scope_labels() const;

  /// Whether LLVM optimises at -Oz; zig turns its -Oz into -Os.
  bool optimises_for_size() const;

  /// Whether a second run gives the same as the first: the compiler neither reads stdin nor writes stdout.
  bool repeatable() const;
};

/// Whether a file of this name is a compiler, and no wrapper around one.
bool is_compiler(std::string_view name);

/// Whether these words are Python's that start `zig cc`: PYTHON -m ziglang cc.
bool is_python_zig(const Strings &start);

} // namespace policybridge

#ifndef POLICYBRIDGE_SRC_DECISION_STORE_H
#define POLICYBRIDGE_SRC_DECISION_STORE_H

#include "descriptor.h"
#include "pass_choices.h"

#include "policybridge/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace policybridge {

/// What names a decision: 8 bytes of a SHA-256, and how often it has been asked before where the hash does not hold
/// that (`by=sequence`).
struct DecisionKey {
  std::uint64_t hash = 0;
  std::uint64_t nth = 0;

  bool operator==(const DecisionKey &other) const { return hash == other.hash && nth == other.nth; }
};

struct DecisionKeyHash {
  std::size_t operator()(const DecisionKey &key) const { return static_cast<std::size_t>(key.hash ^ key.nth); }
};

/// Whether to inline, by the decision's name.
using Decisions = std::unordered_map<DecisionKey, bool, DecisionKeyHash>;

/// The decisions of a section of a store.
struct SectionDecisions {
  Decisions inlining;
  std::vector<PassChoice> passes; ///< in the order of the file, each once; only by site

  std::size_t size() const { return inlining.size() + passes.size(); }
};

/// The compilation that asks for its decisions.
struct CompiledModule {
  std::string llvm;   ///< the major, in digits
  std::string level;  ///< Oz, Os or O2
  std::string by;     ///< site or sequence
  std::string digest; ///< of the module as the pipeline starts; empty where it is not known
  std::string path;   ///< of the source file; relative to the working folder, or absolute
  bool at_link = false; ///< whether a linker optimises it
};

/// A store of tuned decisions, `tuned.db`: text, one section for each module. docs/decisions.md has the format.
///
/// The file is scanned once for its sections; only the decisions of a section that is asked for are read. The file
/// stays open, so that a writer that replaces it does not disturb.
class DecisionStore {
public:
  /// One module's decisions: what its line says, and where in the file they are.
  struct Section {
    CompiledModule module;
    std::uint64_t start = 0; ///< of its line
    std::uint64_t begin = 0; ///< of its decisions
    std::uint64_t end = 0;
  };

  /// Fails with a message that begins with the path, where the file is not a store or not a regular file.
  static Result<DecisionStore> open(const std::string &path);

  /// The section for a module: of its level, kind and phase, and either its file's name or its digest, one without decisions by
  /// its digest alone, if it has one; of several the best by the same major, the same digest, and the number of folders that
  /// are equal from the end. None: null.
  const Section *find(const CompiledModule &module) const;

  /// Whether a section's path is that of the module, as far as the section's path goes.
  static bool is_path_of(const Section &section, const CompiledModule &module);

  /// Why the decisions about a module do not apply to it although the store has some for its path, in words for people;
  /// empty if it has none.
  std::string mismatch(const CompiledModule &module) const;

  /// Fails where a line is not a decision, or the file ends within a line. Where a merge has left two decisions of one
  /// name, the first counts.
  Result<SectionDecisions> read(const Section &section) const;

  const std::vector<Section> &sections() const { return sections_; }

private:
  DecisionStore(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  Status scan();
  Status add_section(std::uint64_t start);
  Result<std::string> bytes(std::uint64_t begin, std::uint64_t end) const;
  Status read_line(std::string_view line, bool by_site, SectionDecisions &decisions) const;
  Status broken(std::uint64_t offset, std::string_view why) const;

  std::string path_;
  Descriptor file_;
  std::uint64_t size_ = 0;
  std::vector<Section> sections_;
};

} // namespace policybridge

#endif

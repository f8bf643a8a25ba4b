#ifndef POLICYBRIDGE_LLVM_CALL_SITES_H
#define POLICYBRIDGE_LLVM_CALL_SITES_H

#include "module_names.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

namespace llvm {
class CallBase;
class Function;
class MDNode;
class Module;
} // namespace llvm

namespace policybridge::plugin {

/// What names a call that is asked for. Names are those of `LastingNames`. They are byte strings, and stay valid as long as the `CallSites` and the call.
struct Site {
  llvm::StringRef caller; ///< the function that holds the call now
  llvm::StringRef origin; ///< the function that held it at the start of the pipeline; empty for a call made later
  llvm::StringRef callee; ///< its callee then; empty for an indirect call. Of a call made later, its callee now.
  unsigned number = 0;     ///< which call of that callee in the origin
  unsigned occurrence = 0; ///< how often this caller, origin, callee and number have been asked for before
  std::uint64_t key = 0;   ///< the first 8 bytes of the SHA-256 of all these, with zero bytes between
};

/// The calls of a module, numbered at the start of its pipeline.
///
/// A call carries its number as metadata, so that a call that comes into another function by inlining has the number of
/// the call that it is a copy of. The metadata's kind is one that LLVM has and never puts on calls: a kind of our own would
/// stay in the list of kinds that LLVM writes into every bitcode file.
class CallSites {
public:
  explicit CallSites(llvm::Module &module);
  CallSites(const CallSites &) = delete;
  CallSites &operator=(const CallSites &) = delete;

  /// The site of a call that LLVM asks about, which counts as asked from now on.
  Site ask(const llvm::CallBase &call);

  /// Take the metadata off the calls again. Calls that are asked for later count as new.
  void strip();

private:
  struct Numbered {
    std::uint32_t origin; // of names_
    std::uint32_t callee;
    unsigned number;
  };

  void number(llvm::Function &function);
  std::uint32_t name_of(llvm::StringRef name);
  const Numbered *find(const llvm::CallBase &call) const;

  llvm::Module &module_;
  const LastingNames lasting_;
  std::deque<std::string> names_; // which never move
  llvm::DenseMap<llvm::StringRef, std::uint32_t> indices_; // of names_, while the calls are numbered
  llvm::DenseMap<const llvm::MDNode *, Numbered> calls_;
  std::unordered_map<std::uint64_t, unsigned> asked_;
};

/// Oz, Os or O2, by the attributes of most of the module's functions: minsize, optsize or neither.
const char *level_of(const llvm::Module &module);

/// The facts about a module at the start of its pipeline that a store needs.
struct ModuleTraits {
  std::string level;  ///< see `level_of`
  std::string digest; ///< in 16 hexadecimal digits, of the names of its functions, their opcodes and callees

  static ModuleTraits of(const llvm::Module &module);
};

} // namespace policybridge::plugin

#endif

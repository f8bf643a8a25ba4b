#ifndef POLICYBRIDGE_LLVM_PASS_LOG_H
#define POLICYBRIDGE_LLVM_PASS_LOG_H

#include "policybridge/status.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <memory>
#include <string>
#include <vector>

namespace policybridge::plugin {

/// Every optional pass that LLVM asked about after the inlining, for tools that look for better choices. pass_log.cpp has
/// the format.
class PassLog {
public:
  /// Begins the file; where that cannot be done, a line on standard error says so, and null is returned.
  static std::unique_ptr<PassLog> open(const std::string &path, llvm::StringRef first_line);

  /// LLVM is about to run an optional pass of its middle end on a function, or not to.
  void ask(llvm::StringRef function, llvm::StringRef pass);

  /// LLVM skips the pass that it asked about last.
  void skip(llvm::StringRef pass);

  /// LLVM runs a pass, optional or not, and each begun run ends.
  void begin(llvm::StringRef pass);
  void end(bool changed);

  /// LLVM asked about a pass of code generation.
  void add_codegen(llvm::StringRef function, llvm::StringRef pass, bool runs);

private:
  struct Run {
    std::string function;
    std::string pass; // empty for a run that is not logged
    unsigned nth = 0;
  };

  explicit PassLog(std::unique_ptr<llvm::raw_fd_ostream> out) : out_(std::move(out)) {}

  Run next(llvm::StringRef function, llvm::StringRef pass);
  void write(llvm::StringRef stage, const Run &run, llvm::StringRef ran, llvm::StringRef changed);

  std::unique_ptr<llvm::raw_fd_ostream> out_;
  Run asked_;
  std::vector<Run> running_;
  llvm::StringMap<unsigned> runs_;
};

} // namespace policybridge::plugin

#endif

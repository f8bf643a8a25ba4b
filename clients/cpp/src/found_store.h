#ifndef POLICYBRIDGE_SRC_FOUND_STORE_H
#define POLICYBRIDGE_SRC_FOUND_STORE_H

#include <string>

namespace policybridge {

/// A project's store of decisions, which its compilations find by themselves.
struct FoundStore {
  /// Empty for none.
  std::string path;
  /// Why the nearest one is not taken; empty if it is, or there is none.
  std::string refused;

  bool is_taken() const { return !path.empty() && refused.empty(); }
};

/// The nearest file `policybridge.decisions` upwards from a source's folder, or from the working folder where `source` is
/// empty. The search ends at the root of the repository (a folder with .git, .hg, .jj or .svn); without one, a store
/// counts in the source's folder and the eight above it. Not taken is a file that another user could have written.
FoundStore find_store(const std::string &source);

} // namespace policybridge

#endif

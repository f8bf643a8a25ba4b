#include "cache_key.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Process.h"

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// The variable that names files whose content belongs to the key of a compiler cache; null for one without such.
const char *extra_files_of(StringRef cache) {
  return cache == "ccache" ? "CCACHE_EXTRAFILES" : cache == "buildcache" ? "BUILDCACHE_HASH_EXTRA_FILES" : nullptr;
}

bool is_extra_file(const char *variable, const std::string &file) {
  const std::string extra = sys::Process::GetEnv(variable).value_or("");
  SmallVector<StringRef> names;
  StringRef(extra).split(names, ':', -1, false);
  return any_of(names, [&file](StringRef name) { return sys::fs::equivalent(name, file); });
}

} // namespace

Status refused_under(const std::string &cache, const std::string &why) {
  return invalid_argument("under " + cache + " " + why);
}

Status check_in_key(const std::string &cache, const std::string &file, const std::string &none,
                    const std::string &what) {
  const char *extra = extra_files_of(cache);
  if (!extra)
    return refused_under(cache, none + ": it does not see when " + file + " changes");
  if (is_extra_file(extra, file))
    return {};
  return refused_under(cache,
                       "name " + file + " in " + extra + ", because it does not see otherwise when " + what);
}

} // namespace policybridge::plugin

#include "cache_key.h"

#include "compiler_cache.h"

namespace policybridge::plugin {

Status refused_under(const std::string &cache, const std::string &why) {
  return invalid_argument("under " + cache + " " + why);
}

Status check_in_key(const std::string &cache, const std::string &file, const std::string &what) {
  if (is_in_key(cache, file))
    return {};
  return refused_under(cache, "name " + file + " in " + extra_files_of(cache) +
                                  ", because it does not see otherwise when " + what);
}

} // namespace policybridge::plugin

#include "settings.h"

#include <algorithm>
#include <functional>

namespace policybridge::plugin {
namespace {

std::string listed(const std::vector<std::int64_t> &sizes) {
  std::string text;
  for (const std::int64_t size : sizes)
    text += (text.empty() ? "" : ",") + std::to_string(size);
  return text;
}

} // namespace

Status Settings::read_tiles(const SettingsSource &source, std::vector<std::int64_t> written_sizes,
                            const std::vector<std::int64_t> &written_default) {
  stats = source.value("stats");
  if (Status status = source.read_fallback(default_stands_in); !status.ok())
    return status;
  if (!written_sizes.empty())
    sizes = std::move(written_sizes);
  if (sizes.size() < 2 || sizes.front() != 0 || !std::is_sorted(sizes.begin(), sizes.end(), std::less_equal<>()))
    return invalid_argument("the option sizes is 0 and larger sizes in increasing order, not " + listed(sizes));
  if (!written_default.empty())
    default_tile.clear();
  for (const std::int64_t size : written_default) {
    const auto entry = std::find(sizes.begin(), sizes.end(), size);
    if (entry == sizes.end())
      return invalid_argument("the option default names sizes of the option sizes, which is " + listed(sizes) +
                              ", not " + std::to_string(size));
    default_tile.push_back(entry - sizes.begin());
  }
  return {};
}

} // namespace policybridge::plugin

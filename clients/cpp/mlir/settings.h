#ifndef POLICYBRIDGE_MLIR_SETTINGS_H
#define POLICYBRIDGE_MLIR_SETTINGS_H

#include "server_settings.h"

#include <cstdint>
#include <string>
#include <vector>

namespace policybridge::plugin {

/// The settings of the pass. What concerns the server, and the statistics, is an option of the pass (`server`) and an
/// environment variable (`POLICYBRIDGE_SERVER`); the option wins. The tiles are options alone.
struct Settings : ServerSettings {
  /// The sizes that the policy chooses among, in increasing order; the first one is 0, which is not to tile.
  std::vector<std::int64_t> sizes{0, 4, 8, 16, 32, 64};
  /// The tile without a policy: places in `sizes`, by loop from the outermost; the last one is for all further loops.
  std::vector<std::int64_t> default_tile{0};
  /// The file for the statistics; `%p` in it stands for the process id, `%m` for the module. Empty for none.
  std::string stats;

  /// The default's place in `sizes` for a loop.
  std::int64_t default_of(std::size_t loop) const {
    return default_tile[loop < default_tile.size() ? loop : default_tile.size() - 1];
  }

  /// Read the settings that do not concern the server. Empty lists leave the defaults.
  /// InvalidArgument: the sizes are no such list, the default is none of them, or `fallback` is none.
  Status read_tiles(const SettingsSource &source, std::vector<std::int64_t> written_sizes,
                    const std::vector<std::int64_t> &written_default);
};

} // namespace policybridge::plugin

#endif

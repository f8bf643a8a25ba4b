#ifndef POLICYBRIDGE_PLUGIN_SETTINGS_SOURCE_H
#define POLICYBRIDGE_PLUGIN_SETTINGS_SOURCE_H

#include "policybridge/status.h"

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge::plugin {

/// Where a plugin's settings come from: the compiler's command line, and behind it the environment. The setting
/// `retry-after` is the variable POLICYBRIDGE_RETRY_AFTER; the list `label` is POLICYBRIDGE_LABELS.
class SettingsSource {
public:
  virtual ~SettingsSource() = default;

  /// The command line's value of a setting, the last one if there are several; absent without one.
  virtual std::optional<std::string> written(std::string_view name) const = 0;

  /// The command line's values of a list, in their order.
  virtual std::vector<std::string> all_written(std::string_view name) const = 0;

  /// A setting as a user writes it, without its value.
  virtual std::string spelled(std::string_view name) const = 0;

  /// Empty where nothing is set.
  std::string value(std::string_view name) const;

  /// InvalidArgument: the text is empty where one has to be.
  Status require(std::string_view name, std::string &text) const;

  /// Read a number within bounds, which `unit` belongs to (`of seconds `); `number` stays as it is where nothing is set.
  Status read_number(std::string_view name, const char *unit, double least, double most, double &number) const;

  /// Read a time-out in seconds, at least a millisecond and at most a day.
  Status read_timeout(std::chrono::milliseconds &timeout) const;

  /// Read whether the compiler's own decisions stand in where there is no advice: `default`, or `error`.
  Status read_fallback(bool &default_stands_in) const;

  /// Read NAME=VALUE. Pairs in the environment are separated by commas; those of the command line are added, and win.
  Status read_pairs(std::string_view name, std::map<std::string, std::string> &pairs) const;

  /// The error that a setting "is …", with both of its spellings.
  Status invalid(std::string_view name, const std::string &what, const char *plural = "") const;
};

/// The variable of a setting, or with the plural `S` of a list.
std::string variable_of(std::string_view name, const char *plural = "");

/// The value of a variable of the environment; absent where it is not set.
std::optional<std::string> environment(const std::string &variable);

} // namespace policybridge::plugin

#endif

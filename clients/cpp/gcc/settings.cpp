#include "settings.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

namespace policybridge::plugin {
namespace {

constexpr std::array<std::string_view, 12> names = {"server",       "policy",      "timeout", "stats", "fallback",
                                                    "growth-limit", "retry-after", "option",  "label", "explore", "evaluate", "spool"};

/// GCC's command line, as far as it is for the plugin.
class CommandLine final : public SettingsSource {
public:
  CommandLine(const std::string &program, const std::vector<Argument> &arguments)
      : program_(program), arguments_(arguments) {}

  std::optional<std::string> written(std::string_view name) const override {
    const std::vector<std::string> all = all_written(name);
    return all.empty() ? std::nullopt : std::optional<std::string>(all.back());
  }

  std::vector<std::string> all_written(std::string_view name) const override {
    std::vector<std::string> values;
    for (const auto &[key, value] : arguments_)
      if (key == name)
        values.push_back(value);
    return values;
  }

  std::string spelled(std::string_view name) const override {
    return "-fplugin-arg-" + program_ + "-" + std::string(name);
  }

private:
  const std::string &program_;
  const std::vector<Argument> &arguments_;
};

} // namespace

Status Settings::read(const std::string &program, const std::vector<Argument> &arguments) {
  const CommandLine source(program, arguments);
  stats = source.value("stats");
  if (Status status = source.read_fallback(default_stands_in); !status.ok())
    return status;
  if (Status status = check_cached(source, {"growth-limit"}); !status.ok())
    return status;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (Status status = source.read_number("growth-limit", "", 0, infinity, growth_limit); !status.ok())
    return status;
  return read_server(source);
}

std::string unknown_argument(const std::vector<Argument> &arguments) {
  for (const Argument &argument : arguments)
    if (std::find(names.begin(), names.end(), argument.first) == names.end())
      return argument.first;
  return "";
}

} // namespace policybridge::plugin

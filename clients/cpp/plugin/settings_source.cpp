#include "settings_source.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

namespace policybridge::plugin {
namespace {

/// As C writes it by %g.
std::string general(double number) {
  char text[32];
  (void)std::snprintf(text, sizeof text, "%g", number);
  return text;
}

std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin)
      parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

} // namespace

std::string variable_of(std::string_view name, const char *plural) {
  std::string variable = "POLICYBRIDGE_";
  for (const char letter : name)
    variable += letter == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return variable + plural;
}

std::optional<std::string> environment(const std::string &variable) {
  const char *value = std::getenv(variable.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::string SettingsSource::value(std::string_view name) const {
  if (const std::optional<std::string> text = written(name))
    return *text;
  return environment(variable_of(name)).value_or("");
}

Status SettingsSource::invalid(std::string_view name, const std::string &what, const char *plural) const {
  return invalid_argument(spelled(name) + " or " + variable_of(name, plural) + " " + what);
}

Status SettingsSource::require(std::string_view name, std::string &text) const {
  text = value(name);
  return text.empty() ? invalid(name, "is not set") : Status();
}

Status SettingsSource::read_number(std::string_view name, const char *unit, double least, double most,
                                   double &number) const {
  const std::string text = value(name);
  if (text.empty())
    return {};
  char *end = nullptr;
  const double given = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(given >= least && given <= most))
    return invalid(name, "is a number " + std::string(unit) + "from " + general(least) + " to " + general(most) +
                             ", not '" + text + "'");
  number = given;
  return {};
}

Status SettingsSource::read_timeout(std::chrono::milliseconds &timeout) const {
  double seconds = static_cast<double>(timeout.count()) / 1000;
  // The upper bound keeps the milliseconds within an int, which is what poll(2) takes.
  Status status = read_number("timeout", "of seconds ", 0.001, 86400, seconds);
  timeout = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  return status;
}

Status SettingsSource::read_fallback(bool &default_stands_in) const {
  const std::string text = value("fallback");
  default_stands_in = text != "error";
  if (text.empty() || text == "default" || text == "error")
    return {};
  return invalid("fallback", "is default or error, not '" + text + "'");
}

Status SettingsSource::read_pairs(std::string_view name, std::map<std::string, std::string> &pairs) const {
  std::vector<std::string> texts = split(environment(variable_of(name, "S")).value_or(""), ',');
  for (std::string &text : all_written(name))
    texts.push_back(std::move(text));
  for (const std::string &text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
      return invalid(name, "is NAME=VALUE, not '" + text + "'", "S");
    pairs[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return {};
}

} // namespace policybridge::plugin

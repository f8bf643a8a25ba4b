#include "policybridge/session.h"

#include "utf8.h"

#include <charconv>
#include <cmath>

namespace policybridge {

namespace {

Status check_text(const char *what, std::string_view text) {
  if (!is_utf8(text))
    return invalid_argument(std::string(what) + " is not UTF-8: " + quoted(text));
  return {};
}

Status check_texts(const char *what, const std::map<std::string, std::string> &texts) {
  for (const auto &[name, value] : texts)
    for (const std::string &text : {name, value})
      if (Status status = check_text(what, text); !status.ok())
        return status;
  return {};
}

Status check_exploration(const Exploration &exploration) {
  if (!(exploration.temperature >= 0 && std::isfinite(exploration.temperature)))
    return invalid_argument("a temperature is 0 or more, not " + std::to_string(exploration.temperature));
  if (!(exploration.epsilon >= 0 && exploration.epsilon <= 1))
    return invalid_argument("epsilon is a probability, not " + std::to_string(exploration.epsilon));
  return {};
}

} // namespace

Result<PolicyReference> PolicyReference::parse(std::string_view text) {
  const std::size_t at = text.find('@');
  PolicyReference reference{std::string(text.substr(0, at)), {}, {}};
  const std::string_view which = at == std::string_view::npos ? "" : text.substr(at + 1);
  if (which.empty())
    return reference;
  if (which.find_first_not_of("0123456789") != std::string_view::npos) {
    reference.alias = std::string(which);
    return reference;
  }
  std::uint64_t version = 0;
  if (std::from_chars(which.data(), which.data() + which.size(), version).ec != std::errc())
    return invalid_argument("policy '" + std::string(text) + "': no version has so large a number");
  reference.version = version;
  return reference;
}

Status OpenOptions::check() const {
  if (policy.version && policy.alias)
    return invalid_argument("policy '" + policy.name + "': ask for version " + std::to_string(*policy.version) +
                            " or the alias '" + *policy.alias + "', not both");
  if (Status status = check_text("a policy's name", policy.name); !status.ok())
    return status;
  if (Status status = check_text("an alias", policy.alias.value_or("")); !status.ok())
    return status;
  if (Status status = check_text("a context's name", context); !status.ok())
    return status;
  if (Status status = check_texts("an option", options); !status.ok())
    return status;
  if (Status status = check_texts("a label", labels); !status.ok())
    return status;
  return exploration ? check_exploration(*exploration) : Status();
}

Status Outcome::check() const {
  for (const auto &[name, value] : values) {
    if (name.empty() || !is_utf8(name))
      return invalid_argument("an outcome's name is some UTF-8 text, not " + quoted(name));
    if (!std::isfinite(value))
      return invalid_argument("the outcome '" + name + "' is a finite number, not " + std::to_string(value));
  }
  return check_text("an outcome's status", status);
}

} // namespace policybridge

#include "policybridge/session.h"

#include "json_writer.h"
#include "sha256.h"
#include "utf8.h"

#include <algorithm>
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

Status check_numbers(const std::map<std::string, double> &values) {
  for (const auto &[name, value] : values) {
    if (name.empty() || !is_utf8(name))
      return invalid_argument("an outcome's name is some UTF-8 text, not " + quoted(name));
    if (!std::isfinite(value))
      return invalid_argument("the outcome '" + name + "' is a finite number, not " + std::to_string(value));
  }
  return {};
}

constexpr const char *exploration_form = "temperature=T,epsilon=E,seed=S";

/// Read the whole of `text`.
template <class Number> bool read_number(std::string_view text, Number &number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

Status check_exploration(const Exploration &exploration) {
  if (!(exploration.temperature >= 0 && std::isfinite(exploration.temperature)))
    return invalid_argument("a temperature is 0 or more, not " + JsonWriter::decimal(exploration.temperature));
  if (!(exploration.epsilon >= 0 && exploration.epsilon <= 1))
    return invalid_argument("epsilon is a probability, not " + JsonWriter::decimal(exploration.epsilon));
  return {};
}

} // namespace

Result<Evaluate> parse_evaluate(std::string_view text) {
  if (text == "there")
    return Evaluate::There;
  if (text == "auto")
    return Evaluate::Auto;
  if (text == "here")
    return Evaluate::Here;
  return invalid_argument("decisions are made here, there or by auto, not " + quoted(text));
}

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

Result<Exploration> Exploration::parse(std::string_view text) {
  Exploration exploration;
  std::vector<std::string_view> given;
  for (std::size_t at = 0; at <= text.size();) {
    const std::string_view part = text.substr(at, text.find(',', at) - at);
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view name = part.substr(0, equals), value = part.substr(std::min(equals + 1, part.size()));
    const bool twice = std::find(given.begin(), given.end(), name) != given.end();
    const bool known = name == "temperature" || name == "epsilon" || name == "seed";
    if (equals == part.size() || !known || twice)
      return invalid_argument(std::string("an exploration is ") + exploration_form + ", each at most once, not " +
                              quoted(part) + (twice ? " twice" : ""));
    given.push_back(name);
    if (name == "seed" && !read_number(value, exploration.seed))
      return invalid_argument("a seed is 0 to 2⁶⁴ − 1, not " + quoted(value));
    if (name != "seed" && !read_number(value, name == "epsilon" ? exploration.epsilon : exploration.temperature))
      return invalid_argument(std::string(name) + " of an exploration is a number, not " + quoted(value));
    at += part.size() + 1;
  }
  if (given.size() == 1 && given.front() == "seed")
    return invalid_argument(std::string("an exploration needs a temperature or an epsilon (") + exploration_form +
                            "): " + quoted(text) + " has neither");
  if (Status status = check_exploration(exploration); !status.ok())
    return status;
  return exploration;
}

Exploration Exploration::of_module(std::string_view module) const {
  return {sha256_head(std::to_string(seed).append("\n").append(module)), temperature, epsilon};
}

bool SessionInfo::declares(std::string_view kind) const {
  return std::find(decides.begin(), decides.end(), kind) != decides.end();
}

Result<std::string> Session::form(const FormReference &) { return unimplemented("the channel carries no forms"); }

std::optional<Result<std::optional<Form>>> Session::form_ahead(const std::string &) { return std::nullopt; }

Status Session::decided(std::uint32_t, std::chrono::nanoseconds, std::string_view) {
  return unimplemented("the channel carries no decisions of the client");
}

Status Session::conclude(const Outcome &outcome) {
  Status status = report(outcome);
  close();
  return status;
}

Status Session::finish() {
  close();
  return {};
}

Status Session::send_record(std::string_view, std::chrono::microseconds) {
  return unimplemented("the channel carries no records");
}

Status Session::bind(const Signature &) { return unimplemented("the channel has one signature for the whole session"); }

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
  if (Status checked = check_numbers(values); !checked.ok())
    return checked;
  for (const auto &[context, numbers] : contexts) {
    if (Status checked = check_text("an outcome's context", context); !checked.ok())
      return checked;
    if (Status checked = check_numbers(numbers); !checked.ok())
      return checked;
  }
  return check_text("an outcome's status", status);
}

} // namespace policybridge

#include "server_settings.h"

#include "compiler_cache.h"
#include "utf8.h"

namespace policybridge::plugin {
namespace {

Status check_settings(const SettingsSource &source, const std::string &cache, std::vector<std::string_view> names,
                      const std::string &prefix, bool default_stands_in) {
  const auto refused = [&](const std::string &why) {
    return invalid_argument("under " + cache + " " + why + ", because it keeps the object by the command line alone");
  };
  if (!source.value("explore").empty())
    return invalid_argument("under " + cache + " nothing explores: it would keep an object that depends on chance");
  names.insert(names.begin(), {"server", "policy", "fallback"});
  for (const std::string_view name : names)
    if (!source.written(name) && environment(variable_of(name)))
      return refused("give " + prefix + source.spelled(name) + " and not " + variable_of(name));
  if (environment(variable_of("option", "S")))
    return refused("give " + prefix + source.spelled("option") + " and not " + variable_of("option", "S"));
  if (default_stands_in)
    return refused("give " + prefix + source.spelled("fallback") + "=error");
  const auto policy = PolicyReference::parse(source.value("policy"));
  const bool by_digest = policy.ok() && policy->alias && policy->alias->compare(0, 7, "sha256:") == 0;
  if (policy.ok() && !policy->version && !by_digest)
    return refused("name the version of the policy: " + prefix + source.spelled("policy") + "=" + policy->name + "@1");
  return {};
}

} // namespace

Status ServerSettings::check_cached(const SettingsSource &source, const std::vector<std::string_view> &more,
                                    const std::string &prefix) {
  const std::string cache = compiler_cache();
  if (cache.empty())
    return {};
  Status status = check_settings(source, cache, more, prefix, default_stands_in);
  default_stands_in = default_stands_in && status.ok();
  return status;
}

Outage ServerSettings::outage() const {
  const auto read = PolicyReference::parse(policy);
  return Outage(server, read.ok() ? *read : PolicyReference{}, Outage::Time(default_stands_in ? retry_after : 0));
}

Status ServerSettings::read_server(const SettingsSource &source) {
  if (Status status = source.require("server", server); !status.ok())
    return status;
  if (Status status = source.require("policy", policy); !status.ok())
    return status;
  if (Status status = source.read_timeout(timeout); !status.ok())
    return status;
  if (Status status = source.read_number("retry-after", "of seconds ", 0, 1e9, retry_after); !status.ok())
    return status;
  if (const std::string text = source.value("explore"); !text.empty()) {
    const Result<Exploration> read = Exploration::parse(text);
    if (!read.ok())
      return source.invalid("explore", "is wrong: " + read.status().message());
    exploration = *read;
  }
  if (const std::string text = source.value("evaluate"); !text.empty()) {
    const Result<Evaluate> read = parse_evaluate(text);
    if (!read.ok())
      return source.invalid("evaluate", "is wrong: " + read.status().message());
    evaluate = *read;
  }
  if (const std::string text = source.value("spool"); !text.empty()) {
    if (text != "0" && text != "1")
      return source.invalid("spool", "is 0 or 1, not " + quoted(text));
    spool = text == "1";
  }
  if (Status status = source.read_pairs("option", options); !status.ok())
    return status;
  return source.read_pairs("label", labels);
}

} // namespace policybridge::plugin

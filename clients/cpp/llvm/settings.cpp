#include "settings.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Process.h"

#include <algorithm>

using namespace llvm;

namespace policybridge::plugin {
namespace {

cl::OptionCategory category("PolicyBridge");
cl::opt<std::string> server_option("policybridge-server", cl::cat(category), cl::value_desc("socket:PATH"),
                                   cl::desc("Where the policy server listens"));
cl::opt<std::string> policy_option("policybridge-policy", cl::cat(category), cl::value_desc("name[@version|@alias]"),
                                   cl::desc("The policy that decides"));
cl::opt<std::string> timeout_option("policybridge-timeout", cl::cat(category), cl::value_desc("seconds"),
                                    cl::desc("For each wait for the server (default: 10)"));
cl::opt<std::string>
    stats_option("policybridge-stats", cl::cat(category), cl::value_desc("file.json"),
                 cl::desc("Write counts and latencies there; %p becomes the process id, %m the module"));
cl::opt<std::string> fallback_option("policybridge-fallback", cl::cat(category), cl::value_desc("default|error"),
                                     cl::desc("Without advice: LLVM's own decisions (default), or an error"));
cl::list<std::string> policy_options("policybridge-option", cl::cat(category), cl::value_desc("name=value"),
                                     cl::desc("For the policy to read"));
cl::list<std::string> session_labels("policybridge-label", cl::cat(category), cl::value_desc("name=value"),
                                     cl::desc("To find the session by"));

/// `policybridge-server` is POLICYBRIDGE_SERVER; lists are POLICYBRIDGE_OPTIONS and POLICYBRIDGE_LABELS.
std::string variable(const cl::Option &option, const char *plural = "") {
  std::string name = StringRef(option.ArgStr).upper() + plural;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string value(const cl::opt<std::string> &option) {
  if (option.getNumOccurrences())
    return option;
  return sys::Process::GetEnv(variable(option)).value_or("");
}

Error invalid(const cl::Option &option, const Twine &right, const char *plural = "") {
  return createStringError(inconvertibleErrorCode(),
                           "-" + option.ArgStr + " or " + variable(option, plural) + " " + right);
}

Error read_timeout(std::chrono::milliseconds &milliseconds) {
  const std::string text = value(timeout_option);
  double seconds = 0;
  if (text.empty())
    return Error::success();
  // The upper bound keeps the milliseconds within an int, which is what poll(2) takes.
  if (!to_float(text, seconds) || !(seconds >= 0.001 && seconds <= 86400))
    return invalid(timeout_option, "is a number of seconds from 0.001 to 86400, not '" + text + "'");
  milliseconds = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  return Error::success();
}

Error read_fallback(bool &default_stands_in) {
  const std::string text = value(fallback_option);
  default_stands_in = text != "error";
  if (text.empty() || text == "default" || text == "error")
    return Error::success();
  return invalid(fallback_option, "is default or error, not '" + text + "'");
}

/// Pairs in the environment are separated by commas. Those of the command line are added, and win by name.
Error read_pairs(const cl::list<std::string> &list, std::map<std::string, std::string> &pairs) {
  const std::string environment = sys::Process::GetEnv(variable(list, "S")).value_or("");
  SmallVector<StringRef> texts;
  StringRef(environment).split(texts, ',', -1, false);
  texts.append(list.begin(), list.end());
  for (const StringRef text : texts) {
    const auto [name, content] = text.split('=');
    if (name.empty() || name.size() == text.size())
      return invalid(list, "is NAME=VALUE, not '" + text + "'", "S");
    pairs[name.str()] = content.str();
  }
  return Error::success();
}

Error require(const cl::opt<std::string> &option, std::string &text) {
  text = value(option);
  return text.empty() ? invalid(option, "is not set") : Error::success();
}

} // namespace

Error Settings::read() {
  stats = value(stats_option);
  if (auto error = read_fallback(default_stands_in))
    return error;
  if (auto error = require(server_option, server))
    return error;
  if (auto error = require(policy_option, policy))
    return error;
  if (auto error = read_timeout(timeout))
    return error;
  if (auto error = read_pairs(policy_options, options))
    return error;
  return read_pairs(session_labels, labels);
}

} // namespace policybridge::plugin

#include "arguments.h"

#include "json_writer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace policybridge {

namespace {

constexpr int usage_status = 2;

constexpr std::string_view usage =
    "usage: policybridge-run --policy NAME --server ADDRESS [options] -- COMPILER ARGUMENT…\n";

constexpr std::string_view help = R"(
Runs an unmodified compiler, and lets a policy of the policy server decide for it. The exit status is the compiler's own,
128 + n where signal n ended it; 70 where the launcher ended it because there was no advice; 2 for a wrong command line;
126 or 127 where the compiler cannot be started.

  -h, --help            show this help message and exit
  --version             show the version and exit
  --policy NAME[@VERSION|@ALIAS]
                        the policy that decides
  --server ADDRESS      socket:PATH
  --task {evict,inline,priority}
                        what it decides (default: inline)
  --fallback {default,error}
                        without advice: the compiler's own decision (default), or end the compiler
  --stats FILE.json     write counts and latencies there; %p becomes the process id
  --timeout SECONDS     for each wait for the server (default: 10)
  --growth-limit FACTOR
                        no more decisions once a module has grown by this factor (default: never)
  --label NAME=VALUE    to find the session by
  --option NAME=VALUE   for the policy to read
)";

constexpr std::array<std::string_view, 11> names = {"--policy",       "--server",  "--task",   "--fallback",
                                                    "--stats",        "--timeout", "--label",  "--option",
                                                    "--growth-limit", "--help",    "--version"};

Exit wrong(const std::string &why) {
  return {std::string(usage) + "policybridge-run: error: " + why + "\n", usage_status};
}

/// As `wrong`, for a value of the right type that is out of its range.
Exit refused(const std::string &why) { return {"policybridge-run: " + why + "\n", usage_status}; }

bool is_option(const std::string &word) { return word.size() > 1 && word.front() == '-'; }

bool is_negative_number(const std::string &word) {
  return word.size() > 1 && word.find_first_not_of("0123456789.", 1) == std::string::npos;
}

std::optional<double> number_in(const std::string &text) {
  char *end = nullptr;
  const double value = strtod(text.c_str(), &end);
  return text.empty() || *end ? std::nullopt : std::optional(value);
}

/// A time-out of any size as microseconds: what is too small becomes one, what is too large some thirty years.
std::chrono::microseconds microseconds_of(double seconds) {
  return std::chrono::microseconds(static_cast<std::int64_t>(std::clamp(seconds, 1e-6, 1e9) * 1e6));
}

class Reader {
public:
  explicit Reader(const Strings &words) : words_(words) {}

  std::variant<Config, Exit> read() {
    while (!exit_ && place_ < words_.size() && is_option(words_[place_]) && words_[place_] != "--")
      option(words_[place_++]);
    if (exit_)
      return std::move(*exit_);
    if (place_ < words_.size() && words_[place_] == "--")
      ++place_;
    config_.command.assign(words_.begin() + static_cast<std::ptrdiff_t>(place_), words_.end());
    if (const std::string missing = missing_options(); !missing.empty())
      return wrong("the following arguments are required: " + missing);
    return check();
  }

private:
  void option(const std::string &word) {
    const std::size_t equals = word.find('=');
    const std::string given = word == "-h" ? "--help" : word.substr(0, equals);
    std::vector<std::string_view> matching;
    for (const std::string_view name : names)
      if (name == given || name.substr(0, given.size()) == given)
        matching.push_back(name);
    const auto exact = std::find(matching.begin(), matching.end(), given);
    if (matching.empty() || given.substr(0, 2) != "--")
      return end(wrong("unrecognized arguments: " + word));
    if (matching.size() > 1 && exact == matching.end())
      return end(wrong("ambiguous option: " + word));
    const std::string name(exact == matching.end() ? matching.front() : *exact);
    if (name == "--help")
      return end({std::string(usage) + std::string(help), 0});
    if (name == "--version")
      return end({"policybridge-run " POLICYBRIDGE_VERSION "\n", 0});
    if (equals != std::string::npos)
      return set(name, word.substr(equals + 1));
    if (place_ == words_.size() || (is_option(words_[place_]) && !is_negative_number(words_[place_])))
      return end(wrong("argument " + name + ": expected one argument"));
    set(name, words_[place_++]);
  }

  void set(const std::string &name, const std::string &value) {
    if (name == "--policy")
      policy_ = value;
    else if (name == "--server")
      server_ = value;
    else if (name == "--stats")
      config_.stats = value;
    else if (name == "--task")
      choose(name, value, {"evict", "inline", "priority"}), config_.task = task_named(value);
    else if (name == "--fallback")
      choose(name, value, {"default", "error"}), config_.falls_back = value == "default";
    else if (name == "--label" || name == "--option")
      pair(name, value);
    else if (const std::optional<double> number = number_in(value))
      (name == "--timeout" ? timeout_ : config_.growth_limit) = *number;
    else
      end(wrong("argument " + name + ": invalid float value: '" + value + "'"));
  }

  void choose(const std::string &name, const std::string &value, const Strings &choices) {
    if (std::find(choices.begin(), choices.end(), value) != choices.end())
      return;
    std::string known;
    for (const std::string &choice : choices)
      known += (known.empty() ? "'" : ", '") + choice + "'";
    end(wrong("argument " + name + ": invalid choice: '" + value + "' (choose from " + known + ")"));
  }

  void pair(const std::string &name, const std::string &value) {
    const std::size_t equals = value.find('=');
    if (equals == 0 || equals == std::string::npos)
      return end(wrong("argument " + name + ": '" + value + "' is not NAME=VALUE"));
    (name == "--label" ? config_.labels : config_.options)[value.substr(0, equals)] = value.substr(equals + 1);
  }

  std::string missing_options() const {
    if (policy_ && server_)
      return "";
    if (policy_ || server_)
      return policy_ ? "--server" : "--policy";
    return "--policy, --server";
  }

  std::variant<Config, Exit> check() {
    if (!config_.task)
      config_.task = task_named("inline");
    Result<PolicyReference> policy = PolicyReference::parse(*policy_);
    if (!policy.ok())
      return refused(policy.status().message());
    config_.policy = *std::move(policy);
    if (!(timeout_ > 0))
      return refused("a timeout is more than 0 seconds, not " + JsonWriter::decimal(timeout_));
    config_.timeout = microseconds_of(timeout_);
    if (!(config_.growth_limit > 0))
      return refused("a growth limit is a factor above 0, not " + JsonWriter::decimal(config_.growth_limit));
    const bool named = server_->compare(0, 7, "socket:") == 0;
    const bool other = std::any_of(schemes.begin(), schemes.end(), [this](std::string_view scheme) {
      return std::string_view(*server_).substr(0, scheme.size()) == scheme;
    });
    if (!named && (other || server_->find('/') == std::string::npos))
      return refused("policybridge-run speaks socket:PATH alone, not '" + *server_ +
                     "'; for other addresses there is `policybridge run`, with the same command line");
    config_.socket = named ? server_->substr(7) : *server_;
    return std::move(config_);
  }

  void end(Exit exit) {
    if (!exit_)
      exit_ = std::move(exit);
  }

  static constexpr std::array<std::string_view, 3> schemes = {"grpc:", "inprocess:", "unix:"};

  const Strings &words_;
  std::size_t place_ = 0;
  Config config_;
  std::optional<std::string> policy_;
  std::optional<std::string> server_;
  double timeout_ = 10;
  std::optional<Exit> exit_;
};

} // namespace

std::variant<Config, Exit> parse_arguments(const Strings &words) { return Reader(words).read(); }

std::string general(double value) {
  char text[32];
  (void)snprintf(text, sizeof text, "%g", value);
  return text;
}

} // namespace policybridge

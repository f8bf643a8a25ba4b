#include "arguments.h"

#include "address.h"
#include "compiler_cache.h"
#include "json_writer.h"
#include "server.h"
#include "several.h"
#include "words.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace policybridge {

namespace {

constexpr int usage_status = 2;

constexpr std::string_view usage =
    "usage: policybridge-run --policy NAME --server ADDRESS [options] -- COMPILER ARGUMENT…\n"
    "       policybridge-run [--decisions FILE | --no-decisions] [--plugins DIR] [options] -- COMPILER ARGUMENT…\n";

constexpr std::string_view help = R"(
Runs an unmodified compiler, and lets a policy of the policy server decide for it. The exit status is the compiler's own,
128 + n where signal n ended it; 70 where the launcher ended it because there was no advice; 2 for a wrong command line;
126 or 127 where the compiler cannot be started.

  -h, --help            show this help message and exit
  --version             show the version and exit
  --policy NAME[@VERSION|@ALIAS]
                        the policy that decides
  --server ADDRESS      socket:PATH, and where it is not linked statically grpc:HOST:PORT, grpc:unix:PATH and
                        grpcs:HOST:PORT; several with commas between: the first that answers (default:
                        POLICYBRIDGE_SERVER of the environment)
  --decisions FILE      a store of tuned decisions, which needs no policy and no server (default without --policy: the
                        file policybridge.decisions upwards from the source, not beyond its repository)
  --no-decisions        without --policy: look for no such file; so does POLICYBRIDGE_NO_DECISIONS=1 of the environment
  --plugins DIR         for a store: where the plugins are, besides POLICYBRIDGE_PLUGINS, the folder lib/policybridge
                        beside this program and where CMake installs; without one that the compiler loads, it is asked
                        as it is
  --task {evict,inline,priority}
                        the task (default: inline)
  --fallback {default,error}
                        without advice: the compiler's own decision (default), or end the compiler
  --stats FILE.json     write counts and latencies there; %p becomes the process id
  --timeout SECONDS     for each wait for the server (default: 10)
  --growth-limit FACTOR
                        the factor of a module's size that the policy may add to it before the compiler decides for
                        itself (default: 4; inf: no limit)
  --retry-after SECONDS
                        how long the other compilations of a build need not wait for a server that did not answer in
                        time (default: 60; 0: each waits)
  --tls-ca FILE, --tls-certificate FILE, --tls-key FILE, --token-file FILE
                        for addresses on TCP
  --label NAME=VALUE    to find the session by
  --option NAME=VALUE   for the policy to read
  --evaluate {there,auto,here}
                        where decisions are made: by the server (there), or in this program by the policy's portable
                        form (here; auto, the default: if it has one)
  --no-spool            do not keep on disk what the policy decided here and a server that went away has not recorded;
                        else the next compilation sends it
  --explore temperature=T,epsilon=E,seed=S
                        depart from the policy's best advice, for training: draw it from softmax(scores / T), and with
                        the probability E from all legal ones; the seed and the source's name determine the choices
)";

constexpr std::array<std::string_view, 22> names = {
    "--policy",       "--server",      "--task",    "--fallback",        "--stats",   "--timeout",    "--label", "--option",
    "--growth-limit", "--retry-after", "--tls-ca",  "--tls-certificate", "--tls-key", "--token-file", "--help",  "--version",
    "--decisions",    "--plugins",     "--explore", "--evaluate",        "--no-decisions", "--no-spool"};

Evaluate evaluate_named(std::string_view name) {
  const Result<Evaluate> evaluate = parse_evaluate(name);
  return evaluate.ok() ? *evaluate : Evaluate::Auto;
}

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

/// A time-out of any size as microseconds: at least one, at most some thirty years.
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
      return end({"policybridge-run " POLICYBRIDGE_VERSION "\naddresses: socket" +
                      std::string(reaches_grpc() ? " grpc grpcs" : "") + "\n",
                  0});
    if (name == "--no-decisions" || name == "--no-spool")
      return equals == std::string::npos ? switch_off(name)
                                         : end(wrong("argument " + name + ": ignored explicit argument '" +
                                                     word.substr(equals + 1) + "'"));
    if (equals != std::string::npos)
      return set(name, word.substr(equals + 1));
    if (place_ == words_.size() || (is_option(words_[place_]) && !is_negative_number(words_[place_])))
      return end(wrong("argument " + name + ": expected one argument"));
    set(name, words_[place_++]);
  }

  void set(const std::string &name, const std::string &value) {
    if (name == "--policy" ? has_decisions_ : name == "--decisions" && policy_)
      end(wrong("argument " + name + ": not allowed with argument " +
                (has_decisions_ ? "--decisions" : "--policy")));
    else if (name == "--decisions" && is_off_)
      end(wrong("argument --decisions: not allowed with argument --no-decisions"));
    else if (name == "--policy")
      policy_ = value;
    else if (name == "--server")
      server_ = value;
    else if (std::string *const file = credential(name))
      *file = value, has_credentials_ = true;
    else if (name == "--stats")
      config_.stats = value;
    else if (name == "--decisions")
      config_.decisions = value, has_decisions_ = true;
    else if (name == "--plugins")
      config_.plugins = value;
    else if (name == "--explore")
      explore_ = value;
    else if (name == "--task")
      choose(name, value, {"evict", "inline", "priority"}), config_.task = task_named(value);
    else if (name == "--evaluate")
      choose(name, value, {"there", "auto", "here"}), config_.evaluate = evaluate_named(value);
    else if (name == "--fallback")
      choose(name, value, {"default", "error"}), config_.falls_back = value == "default";
    else if (name == "--label" || name == "--option")
      pair(name, value);
    else if (const std::optional<double> number = number_in(value))
      (name == "--timeout"       ? timeout_
       : name == "--retry-after" ? config_.retry_after
                                 : config_.growth_limit) = *number;
    else
      end(wrong("argument " + name + ": invalid float value: '" + value + "'"));
  }

  void switch_off(const std::string &name) {
    if (name == "--no-spool") {
      config_.spool = false;
      return;
    }
    if (has_decisions_)
      return end(wrong("argument --no-decisions: not allowed with argument --decisions"));
    is_off_ = true;
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

  std::variant<Config, Exit> check() {
    if (!config_.task)
      config_.task = task_named("inline");
    if (!(config_.growth_limit > 0))
      return refused("a growth limit is a factor above 0, not " + JsonWriter::decimal(config_.growth_limit));
    if (has_decisions_)
      return check_decisions();
    if (!policy_)
      return check_without();
    if (const char *variable = std::getenv("POLICYBRIDGE_SERVER"); !server_ && variable && *variable)
      server_ = variable;
    if (!server_)
      return refused("--policy needs --server ADDRESS, or POLICYBRIDGE_SERVER in the environment");
    if (!config_.plugins.empty())
      return refused("--plugins is for --decisions");
    if (explore_)
      if (const std::string cache = compiler_cache(); !cache.empty())
        return refused("under " + cache + " nothing explores: it would keep an object that depends on chance");
    Result<PolicyReference> policy = PolicyReference::parse(*policy_);
    if (!policy.ok())
      return refused(policy.status().message());
    config_.policy = *std::move(policy);
    config_.policy_text = *policy_;
    if (!(timeout_ > 0))
      return refused("a timeout is more than 0 seconds, not " + JsonWriter::decimal(timeout_));
    config_.timeout = microseconds_of(timeout_);
    if (!(config_.retry_after >= 0))
      return refused("a server is retried after 0 seconds or more, not " + JsonWriter::decimal(config_.retry_after));
    if (explore_) {
      const Result<Exploration> exploration = Exploration::parse(*explore_);
      if (!exploration.ok())
        return refused(exploration.status().message());
      config_.exploration = *exploration;
    }
    config_.server = *server_;
    return check_addresses();
  }

  std::variant<Config, Exit> check_addresses() {
    const auto is_scheme = [](std::string_view name) {
      return name == "socket" || std::find(schemes.begin(), schemes.end(), std::string(name) + ":") != schemes.end();
    };
    bool over_grpc = false;
    for (const std::string &address : split_addresses(*server_, is_scheme)) {
      if (const Status status = check_address(address); !status.ok())
        return refused(status.message());
      const std::string reachable = is_socket(address) ? with_scheme("socket:", address)
                                    : has_grpc         ? grpc_address(address)
                                                       : "";
      over_grpc |= !reachable.empty() && !is_socket(address);
      config_.reachable += (config_.reachable.empty() || reachable.empty() ? "" : ",") + reachable;
    }
    // Addresses of other kinds beside a socket are for others who read the same variable.
    if (config_.reachable.empty())
      return refused(std::string("this policybridge-run speaks ") +
                     (has_grpc ? "socket:PATH, grpc: and grpcs:" : "socket:PATH alone") + ", not '" + *server_ + "'; " +
                     (has_grpc ? "" : "built with -DPOLICYBRIDGE_LAUNCHER_STATIC=OFF it speaks gRPC, too; ") +
                     "for other addresses there is `policybridge run`, with the same command line");
    if (has_credentials_ && !over_grpc)
      return refused(*server_ + " takes no certificates and no token; those are for gRPC on TCP");
    return std::move(config_);
  }

  /// Where the file of that option is noted; null where the option is another.
  std::string *credential(const std::string &name) {
    Credentials &files = config_.credentials;
    return name == "--tls-ca"            ? &files.ca
           : name == "--tls-certificate" ? &files.certificate
           : name == "--tls-key"         ? &files.key
           : name == "--token-file"      ? &files.token_file
                                         : nullptr;
  }

  static bool is_socket(std::string_view address) {
    const bool other = std::any_of(schemes.begin(), schemes.end(),
                                   [address](std::string_view scheme) { return starts_with(address, scheme); });
    return starts_with(address, "socket:") || (!other && address.find('/') != std::string_view::npos);
  }

  static std::string with_scheme(const std::string &scheme, const std::string &address) {
    return (starts_with(address, scheme) ? "" : scheme) + address;
  }

  /// Empty where the address is not gRPC's.
  static std::string grpc_address(const std::string &address) {
    if (starts_with(address, "inprocess:"))
      return "";
    return starts_with(address, "grpcs:") ? address : with_scheme("grpc:", address);
  }

  /// Neither a policy nor a store is given.
  std::variant<Config, Exit> check_without() {
    if (server_ || explore_ || !is_inline(*config_.task))
      return refused(std::string(server_ ? "--server" : explore_ ? "--explore" : "--task") + " needs --policy NAME");
    const char *off = std::getenv("POLICYBRIDGE_NO_DECISIONS");
    config_.is_plain = is_off_ || (off && *off);
    config_.finds_store = !config_.is_plain;
    return std::move(config_);
  }

  std::variant<Config, Exit> check_decisions() {
    if (server_)
      return refused("with --decisions no server is asked: give either --decisions, or --policy and --server");
    if (explore_)
      return refused("--explore needs a policy; a store of decisions has nothing to explore");
    if (!is_inline(*config_.task))
      return refused("a store has decisions of the task 'inline' alone, not of '" + std::string(config_.task->name) +
                     "'");
    return std::move(config_);
  }

  void end(Exit exit) {
    if (!exit_)
      exit_ = std::move(exit);
  }

  static constexpr std::array<std::string_view, 4> schemes = {"grpc:", "grpcs:", "inprocess:", "unix:"};

  const Strings &words_;
  std::size_t place_ = 0;
  Config config_;
  std::optional<std::string> policy_;
  std::optional<std::string> server_;
  std::optional<std::string> explore_;
  double timeout_ = 10;
  bool has_credentials_ = false;
  bool has_decisions_ = false;
  bool is_off_ = false;
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

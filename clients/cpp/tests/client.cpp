// A client that does what its standard input says, one line one answer, for tests/native/library/test_client.py.

#include "policybridge/policybridge.h"
#include "words.h"

#ifdef POLICYBRIDGE_WITH_GRPC
#include "policybridge/grpc.h"
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <thread>

using namespace policybridge;

namespace {

/// Call `call` with a value of the C++ type that `type` is; numeric types only.
template <class Call> auto with_type(ElementType type, Call &&call) {
  switch (type) {
  case ElementType::Float:
    return call(float());
  case ElementType::Double:
    return call(double());
  case ElementType::Int8:
    return call(std::int8_t());
  case ElementType::UInt8:
    return call(std::uint8_t());
  case ElementType::Int16:
    return call(std::int16_t());
  case ElementType::UInt16:
    return call(std::uint16_t());
  case ElementType::Int32:
    return call(std::int32_t());
  case ElementType::UInt32:
    return call(std::uint32_t());
  case ElementType::UInt64:
    return call(std::uint64_t());
  case ElementType::Bool:
    return call(bool());
  default:
    return call(std::int64_t());
  }
}

template <class T> T parse(const std::string &word) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(std::strtod(word.c_str(), nullptr)); // not std::stod, which throws at denormal numbers
  else if constexpr (std::is_signed_v<T>)
    return static_cast<T>(std::stoll(word));
  else
    return static_cast<T>(std::stoull(word));
}

template <class T> std::string print(T value) {
  char text[40];
  if constexpr (std::is_floating_point_v<T>)
    return {text, std::to_chars(text, text + sizeof text, static_cast<double>(value)).ptr};
  else if constexpr (std::is_signed_v<T>)
    return std::to_string(static_cast<long long>(value));
  else
    return std::to_string(static_cast<unsigned long long>(value));
}

std::string failed(const Status &status) {
  return std::string("error ") + to_string(status.code()) + " " + encode_text(status.message());
}

std::string answer(const Status &status) { return status.ok() ? "ok" : failed(status); }

std::string print(const Tensor &tensor) {
  std::string text;
  for (std::int64_t dimension : tensor.shape())
    text += (text.empty() ? "" : ",") + std::to_string(dimension);
  text = text.empty() ? "-" : text;
  for (std::size_t n = 0; n < tensor.count(); ++n)
    text +=
        ' ' + (is_text(tensor.spec().type)
                   ? encode_text(tensor.text(n))
                   : with_type(tensor.spec().type, [&](auto zero) { return print(tensor.data<decltype(zero)>()[n]); }));
  return text;
}

Status assign(Tensor &tensor, const std::vector<std::int64_t> &shape, Span<const std::string> words) {
  if (is_text(tensor.spec().type)) {
    std::vector<std::string> texts;
    std::transform(words.begin(), words.end(), std::back_inserter(texts), decode_text);
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    return tensor.set_texts(views, shape);
  }
  return with_type(tensor.spec().type, [&](auto zero) {
    using T = decltype(zero);
    std::unique_ptr<T[]> values(new T[words.size() + 1]);
    std::transform(words.begin(), words.end(), values.get(), parse<T>);
    return tensor.set<T>(Span<const T>(values.get(), words.size()), shape);
  });
}

Outcome parse_outcome(Span<const std::string> words) {
  Outcome outcome;
  outcome.status = decode_text(words[0]);
  for (std::size_t n = 1; n + 1 < words.size(); n += 2) {
    // CONTEXT@NAME is a number of a context.
    const std::string name = decode_text(words[n]);
    const std::size_t at = name.find('@');
    (at == std::string::npos ? outcome.values[name] : outcome.contexts[name.substr(0, at)][name.substr(at + 1)]) =
        parse<double>(words[n + 1]);
  }
  return outcome;
}

class Client {
public:
  std::string run(const std::string &line) {
    const std::vector<std::string> words = split(line);
    const Span<const std::string> rest(words.data() + 1, words.size() - 1);
    for (const auto &[name, command] : commands)
      if (words[0] == name)
        return (this->*command)(rest);
    return "error no such command: " + words[0];
  }

private:
  using Words = Span<const std::string>;

  struct Command {
    const char *name;
    std::string (Client::*run)(Words);
  };

  std::string connect(Words words) {
    ConnectOptions options;
#ifdef POLICYBRIDGE_WITH_GRPC
    options.schemes = {grpc_scheme, grpcs_scheme};
#endif
    options.timeout = std::chrono::microseconds(static_cast<std::int64_t>(std::stod(words[1]) * 1e6));
    Result<std::shared_ptr<Connection>> made = policybridge::connect(words[0], options);
    if (!made.ok())
      return failed(made.status());
    connection_ = std::move(*made);
    return "ok";
  }

  /// `use N`: what follows is about the runner N.
  std::string use(Words words) {
    current_ = std::stoull(words[0]);
    return "ok";
  }

  std::string check(Words) { return answer(connection_->check()); }

  std::string feature(Words words) {
    features_.push_back(parse_spec(words));
    return "ok";
  }

  std::string advice(Words words) {
    advice_ = parse_spec(words);
    return "ok";
  }

  std::string option(Words words) {
    options_.options[decode_text(words[0])] = decode_text(words[1]);
    return "ok";
  }

  std::string label(Words words) {
    options_.labels[decode_text(words[0])] = decode_text(words[1]);
    return "ok";
  }

  std::string explore(Words words) {
    options_.exploration = Exploration{std::stoull(words[0]), std::stod(words[1]), std::stod(words[2])};
    return "ok";
  }

  /// Say where the decisions are made.
  std::string place(Words words) {
    const Result<Evaluate> evaluate = parse_evaluate(words[0]);
    if (!evaluate.ok())
      return failed(evaluate.status());
    options_.evaluate = *evaluate;
    return "ok";
  }

  std::string fallback(Words words) {
    const std::vector<std::string> values(words.begin(), words.end());
    runner_options_.fallback = [values](const Status &, Tensor &to) { return assign(to, {}, values); };
    return "ok";
  }

  std::string reopen(Words) {
    runner_options_.reopen = true;
    return "ok";
  }

  /// Begin the options of a session.
  std::string policy(Words words) {
    features_.clear();
    options_ = {};
    runner_options_ = {};
    Result<PolicyReference> policy = PolicyReference::parse(decode_text(words[0]));
    if (!policy.ok())
      return failed(policy.status());
    options_.policy = std::move(*policy);
    return "ok";
  }

  std::string open(Words) {
    runner().reset();
    Result<std::unique_ptr<ModelRunner>> opened =
        ModelRunner::open(connection_, options_, features_, advice_, runner_options_);
    if (!opened.ok())
      return failed(opened.status());
    runner() = std::move(*opened);
    return "ok";
  }

  std::string several_kinds(Words) {
    options_.several_kinds = true;
    return "ok";
  }

  /// The features and the advice since `policy` are those of the runner from now on.
  std::string bind(Words) { return answer(runner()->bind(features_, advice_)); }

  std::string decides(Words) {
    Result<SessionInfo> info = runner()->session();
    if (!info.ok())
      return failed(info.status());
    std::string kinds = "ok";
    for (const std::string &kind : info->decides)
      kinds += " " + encode_text(kind);
    return kinds;
  }

  std::string session(Words) {
    Result<SessionInfo> info = runner()->session();
    if (!info.ok())
      return failed(info.status());
    return "ok " + encode_text(info->id) + " " + encode_text(info->policy.name) + " " +
           std::to_string(info->policy.version) + " " + encode_text(info->policy.digest);
  }

  std::string set(Words words) {
    Tensor *tensor = runner()->tensor(std::stoull(words[0]));
    if (!tensor)
      return failed(invalid_argument("no feature " + words[0]));
    const Words values(words.data() + 2, words.size() - 2);
    return answer(assign(*tensor, words[1] == "?" ? std::vector<std::int64_t>() : parse_shape(words[1]), values));
  }

  /// Write into the feature's buffer itself.
  std::string write(Words words) {
    const std::size_t index = std::stoull(words[0]);
    const std::optional<ElementType> type = element_type_from(words[1]);
    return with_type(*type, [&](auto zero) -> std::string {
      auto *buffer = runner()->feature<decltype(zero)>(index);
      if (!buffer)
        return "null";
      for (std::size_t n = 2; n < words.size(); ++n)
        buffer[n - 2] = parse<decltype(zero)>(words[n]);
      return "ok";
    });
  }

  std::string get(Words words) { return "ok " + print(*runner()->tensor(std::stoull(words[0]))); }

  std::string evaluate(Words) {
    Result<const Tensor *> advice = runner()->evaluate();
    return advice.ok() ? "ok " + print(**advice) : failed(advice.status());
  }

  std::string scalar(Words words) {
    return with_type(*element_type_from(words[0]), [this](auto zero) {
      auto advice = runner()->evaluate<decltype(zero)>();
      return advice.ok() ? "ok " + print(*advice) : failed(advice.status());
    });
  }

  std::string chance(Words) {
    const std::optional<float> chance = runner()->log_probability();
    return chance ? "ok " + print(*chance) : "null";
  }

  std::string context(Words words) {
    const std::string name = decode_text(words[0]);
    if (!runner())
      options_.context = name;
    return runner() ? answer(runner()->set_context(name)) : "ok";
  }

  std::string report(Words words) { return answer(runner()->report_outcome(parse_outcome(words))); }

  std::string report_other(Words words) {
    const Outcome outcome = parse_outcome({words.data() + 1, words.size() - 1});
    return answer(connection_->report_outcome(decode_text(words[0]), outcome));
  }

  std::string status(Words) { return answer(runner()->status()); }

  std::string counts(Words) {
    const RunnerCounts &counts = runner()->counts();
    return "ok " + std::to_string(counts.decisions) + " " + std::to_string(counts.fallbacks) + " " +
           std::to_string(counts.retries) + " " + std::to_string(counts.reopened);
  }

  std::string close(Words) {
    runner()->close();
    return "ok";
  }

  std::string release(Words) {
    runner().reset();
    return "ok";
  }

  std::string disconnect(Words) {
    connection_.reset();
    return "ok";
  }

  /// `threads N M`: N threads with a runner each on this connection, M sums each; answers how many were right.
  std::string threads(Words words) {
    std::atomic<std::uint64_t> right = 0;
    const auto ask = [&](std::int64_t base) {
      auto runner = ModelRunner::open(connection_, options_, features_, advice_, {});
      for (std::int64_t n = 0; runner.ok() && n < std::stoll(words[1]); ++n) {
        *(*runner)->feature<std::int64_t>(*(*runner)->index_of("a")) = base;
        *(*runner)->feature<std::int64_t>(*(*runner)->index_of("b")) = n;
        const Result<std::int64_t> sum = (*runner)->evaluate<std::int64_t>();
        right += sum.ok() && *sum == base + n;
      }
    };
    std::vector<std::thread> threads;
    for (std::int64_t n = 0; n < std::stoll(words[0]); ++n)
      threads.emplace_back(ask, n * 1000);
    for (std::thread &thread : threads)
      thread.join();
    return "ok " + std::to_string(right);
  }

  /// `bench N`: N round trips; answers the 50th and 99th percentile in nanoseconds.
  std::string bench(Words words) {
    std::vector<std::int64_t> times;
    for (std::uint64_t n = std::stoull(words[0]); n--;) {
      const auto begun = std::chrono::steady_clock::now();
      if (Result<const Tensor *> advice = runner()->evaluate(); !advice.ok())
        return failed(advice.status());
      times.push_back((std::chrono::steady_clock::now() - begun).count());
    }
    std::sort(times.begin(), times.end());
    return "ok " + std::to_string(times[times.size() / 2]) + " " + std::to_string(times[times.size() * 99 / 100]);
  }

  std::unique_ptr<ModelRunner> &runner() { return runners_.at(current_); }

  static TensorSpec parse_spec(Words words) {
    return {decode_text(words[0]), element_type_from(words[1]).value_or(ElementType{}), parse_shape(words[2])};
  }

  static const std::vector<Command> commands;

  std::shared_ptr<Connection> connection_;
  std::vector<TensorSpec> features_;
  TensorSpec advice_;
  OpenOptions options_;
  RunnerOptions runner_options_;
  std::array<std::unique_ptr<ModelRunner>, 64> runners_;
  std::size_t current_ = 0;
};

const std::vector<Client::Command> Client::commands = {
    {"connect", &Client::connect},       {"check", &Client::check},
    {"feature", &Client::feature},       {"advice", &Client::advice},
    {"option", &Client::option},         {"label", &Client::label},
    {"place", &Client::place},
    {"explore", &Client::explore},       {"fallback", &Client::fallback},
    {"reopen", &Client::reopen},         {"use", &Client::use},
    {"policy", &Client::policy},         {"open", &Client::open},
    {"session", &Client::session},       {"set", &Client::set},
    {"write", &Client::write},           {"get", &Client::get},
    {"evaluate", &Client::evaluate},     {"scalar", &Client::scalar},
    {"chance", &Client::chance},         {"context", &Client::context},
    {"report", &Client::report},         {"report_other", &Client::report_other},
    {"status", &Client::status},         {"counts", &Client::counts},
    {"close", &Client::close},           {"release", &Client::release},
    {"disconnect", &Client::disconnect}, {"threads", &Client::threads},
    {"bench", &Client::bench},           {"bind", &Client::bind},
    {"decides", &Client::decides},       {"several_kinds", &Client::several_kinds},
};

} // namespace

int main() {
  Client client;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << client.run(line) << std::endl;
}

#include "channel_driver.h"

#include <cstdlib>
#include <functional>
#include <iostream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

namespace policybridge {
namespace {

using Words = std::istringstream;

constexpr const char *digits = "0123456789abcdef";

std::string to_hex(const std::vector<char> &bytes) {
  std::string text;
  for (char byte : bytes) {
    text += digits[static_cast<unsigned char>(byte) >> 4];
    text += digits[static_cast<unsigned char>(byte) & 15];
  }
  return text.empty() ? "-" : text;
}

std::string from_hex(const std::string &text) {
  std::string bytes;
  for (std::size_t n = 0; n + 1 < text.size(); n += 2)
    bytes += static_cast<char>(std::strtol(text.substr(n, 2).c_str(), nullptr, 16));
  return bytes;
}

template <class T> T next(Words &words) {
  T word{};
  words >> word;
  return word;
}

std::string told(const Status &status, const std::string &answer = "") {
  if (!status.ok())
    return std::string("error ") + to_string(status.code()) + " " + status.message();
  return answer.empty() ? "ok" : "ok " + answer;
}

TensorSpec spec(Words &words) {
  TensorSpec made{next<std::string>(words), ElementType::Int64, {}};
  made.type = element_type_from(next<std::string>(words)).value_or(ElementType::Int64);
  for (std::int64_t size; words >> size;)
    made.shape.push_back(size);
  return made;
}

Outcome outcome(Words &words) {
  Outcome made;
  made.status = next<std::string>(words);
  for (std::string name; words >> name;)
    made.values[name] = next<double>(words);
  return made;
}

class Driver {
public:
  explicit Driver(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

  std::string answer(Words &words) {
    const auto verb = next<std::string>(words);
    if (verb == "open")
      return open(words);
    if (verb == "ask")
      return ask(words);
    if (verb == "many")
      return many(words);
    if (verb == "context")
      return told(session(words).set_context(next<std::string>(words)));
    if (verb == "report")
      return report(session(words), words);
    if (verb == "report-past") {
      const auto id = next<std::string>(words);
      return told(connection_->report_outcome(id, outcome(words)));
    }
    if (verb == "is-open")
      return told({}, std::to_string(session(words).is_open()));
    if (verb == "close")
      session(words).close();
    else if (verb == "check")
      return told(connection_->check());
    else if (verb == "disconnect")
      connection_.reset();
    else
      prepare(verb, words);
    return "ok";
  }

private:
  void prepare(const std::string &verb, Words &words) {
    if (verb == "feature")
      signature_.features.push_back(spec(words));
    else if (verb == "advice")
      signature_.advice = spec(words);
    else if (verb == "option" || verb == "label")
      words >> (verb == "option" ? options_.options : options_.labels)[next<std::string>(words)];
    else if (verb == "opening-context")
      words >> options_.context;
    else if (verb == "explore") {
      Exploration &exploration = options_.exploration.emplace();
      words >> exploration.seed >> exploration.temperature >> exploration.epsilon;
    } else if (verb == "forget") {
      signature_ = {};
      options_ = {};
    } else {
      std::cerr << "unknown command " << verb << "\n";
      std::exit(2);
    }
  }

  Session &session(Words &words) { return *sessions_.at(next<std::size_t>(words)); }

  Result<std::unique_ptr<Session>> opened(const std::string &policy) const {
    Result<PolicyReference> reference = PolicyReference::parse(policy);
    if (!reference.ok())
      return reference.status();
    OpenOptions options = options_;
    options.policy = *reference;
    if (Status fits = signature_.check(); !fits.ok())
      return fits;
    return connection_->open(options, signature_);
  }

  std::string open(Words &words) {
    Result<std::unique_ptr<Session>> session = opened(next<std::string>(words));
    if (!session.ok())
      return told(session.status());
    sessions_.push_back(*std::move(session));
    Result<SessionInfo> info = sessions_.back()->info();
    if (!info.ok())
      return "ok";
    return told({}, info->id + " " + info->policy.name + " " + std::to_string(info->policy.version) + " " +
                        info->policy.digest);
  }

  std::string ask(Words &words) {
    Session &session = this->session(words);
    const auto step = next<std::uint64_t>(words);
    const std::string observation = from_hex(next<std::string>(words));
    Status status = session.evaluate(step, observation, advice_);
    std::ostringstream answer;
    answer << to_hex(advice_.bytes);
    if (advice_.log_probability)
      answer << " " << *advice_.log_probability;
    return told(status, answer.str());
  }

  static std::string report(Session &session, Words &words) { return told(session.report(outcome(words))); }

  std::string many(Words &words) {
    const auto threads = next<int>(words);
    const auto decisions = next<std::uint64_t>(words);
    const auto policy = next<std::string>(words);
    const std::string observation = from_hex(next<std::string>(words));
    std::mutex mutex;
    std::set<std::string> answers;
    auto run = [&] {
      std::set<std::string> mine;
      Result<std::unique_ptr<Session>> session = opened(policy);
      if (!session.ok())
        mine.insert(told(session.status()));
      AdviceBuffer advice;
      for (std::uint64_t step = 1; session.ok() && step <= decisions; ++step) {
        Status status = (*session)->evaluate(step, observation, advice);
        mine.insert(status.ok() ? to_hex(advice.bytes) : told(status));
      }
      std::lock_guard<std::mutex> lock(mutex);
      answers.merge(mine);
    };
    std::vector<std::thread> running;
    for (int n = 0; n < threads; ++n)
      running.emplace_back(run);
    for (std::thread &thread : running)
      thread.join();
    std::string all;
    for (const std::string &each : answers)
      all += (all.empty() ? "" : " ") + each;
    return told({}, all);
  }

  std::shared_ptr<Connection> connection_;
  Signature signature_;
  OpenOptions options_;
  std::vector<std::unique_ptr<Session>> sessions_;
  AdviceBuffer advice_;
};

} // namespace

int drive(std::vector<Scheme> schemes, int argument_count, char **arguments) {
  if (argument_count != 3) {
    std::cerr << "usage: " << arguments[0] << " ADDRESS MILLISECONDS\n";
    return 2;
  }
  ConnectOptions options;
  options.timeout = std::chrono::milliseconds(std::atol(arguments[2]));
  options.schemes = std::move(schemes);
  Result<std::shared_ptr<Connection>> connection = connect(arguments[1], options);
  std::cout << told(connection.status()) << std::endl;
  if (!connection.ok())
    return 1;
  Driver driver(*std::move(connection));
  for (std::string line; std::getline(std::cin, line);) {
    Words words(line);
    std::cout << driver.answer(words) << std::endl;
  }
  return 0;
}

} // namespace policybridge

#include "load.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

namespace bench {

using policybridge::invalid_argument;
using policybridge::Result;

namespace {

std::optional<double> parse_number(const std::string &text) {
  char *end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(number > 0))
    return std::nullopt;
  return number;
}

bool set(Options &options, const std::string &name, const std::string &value) {
  const std::map<std::string, std::string *> texts = {{"kind", &options.kind},     {"address", &options.address},
                                                      {"method", &options.method}, {"policy", &options.policy},
                                                      {"file", &options.file}};
  if (const auto text = texts.find(name); text != texts.end()) {
    *text->second = value;
    return true;
  }
  const std::optional<double> number = parse_number(value);
  if (!number)
    return false;
  if (name == "seconds")
    options.seconds = *number;
  else if (name == "warm-up")
    options.warm_up = *number;
  else if (name == "rate")
    options.rate = number;
  else
    return false;
  return true;
}

Result<policybridge::TensorSpec> read_spec(std::istringstream &words) {
  std::string name;
  std::string type;
  words >> name >> type;
  const auto element = policybridge::element_type_from(type);
  if (!element)
    return invalid_argument("unknown element type " + type);
  policybridge::TensorSpec spec{name, *element, {}};
  for (std::int64_t dim = 0; words >> dim;)
    spec.shape.push_back(dim);
  return spec;
}

} // namespace

std::optional<Options> parse_options(int count, char **words) {
  Options options;
  for (int index = 1; index < count; ++index) {
    const std::string word = words[index];
    const std::size_t equals = word.find('=');
    if (word.rfind("--", 0) != 0 || equals == std::string::npos ||
        !set(options, word.substr(2, equals - 2), word.substr(equals + 1))) {
      std::fprintf(stderr, "unknown option, or a value that the option does not take: %s\n", words[index]);
      return std::nullopt;
    }
  }
  if (options.kind.empty() || options.address.empty() || options.file.empty()) {
    std::fprintf(stderr, "--kind=KIND --address=ADDRESS --file=FILE are needed\n");
    return std::nullopt;
  }
  return options;
}

Result<Messages> read_messages(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  Messages read;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    Result<policybridge::TensorSpec> spec = read_spec(words);
    if (!spec)
      return spec.status();
    if (what == "advice")
      read.signature.advice = *std::move(spec);
    else
      read.signature.features.push_back(*std::move(spec));
  }
  for (std::uint64_t size = 0; file.read(reinterpret_cast<char *>(&size), sizeof size);) {
    std::string message(size, '\0');
    if (!file.read(message.data(), static_cast<std::streamsize>(size)))
      return invalid_argument(path + " ends in the middle of a message");
    read.messages.push_back(std::move(message));
  }
  if (read.messages.empty())
    return invalid_argument(path + " holds no message");
  return read;
}

} // namespace bench

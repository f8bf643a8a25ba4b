#include "options.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string_view>

namespace bench {

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

} // namespace bench

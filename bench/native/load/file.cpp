#include "file.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace bench {

using policybridge::invalid_argument;
using policybridge::Result;

namespace {

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

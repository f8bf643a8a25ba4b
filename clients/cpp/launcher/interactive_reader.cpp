#include "interactive_reader.h"

#include "protocol.h"
#include "utf8.h"
#include "words.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace policybridge {

namespace {

constexpr std::size_t one_read = 1 << 16;

Status malformed(std::string_view line) {
  return invalid_argument("not a line of LLVM's protocol (\"features\", \"context\" or \"observation\"): " +
                          quoted(line.substr(0, line.find('\n'))));
}

bool announces_observation(std::string_view line) {
  constexpr std::size_t number = std::string_view("{\"observation\":").size();
  const std::string_view digits = line.substr(number, line.size() - std::min(line.size(), number + 2));
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos &&
         line.substr(line.size() - 2) == "}\n";
}

} // namespace

InteractiveReader::InteractiveReader() : buffer_(2 * one_read) {}

char *InteractiveReader::space(std::size_t &size) {
  if (begin_ == end_)
    begin_ = end_ = 0;
  if (buffer_.size() - end_ < one_read) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  if (buffer_.size() - end_ < one_read)
    buffer_.resize(std::max(2 * buffer_.size(), needed_ + one_read));
  size = buffer_.size() - end_;
  return buffer_.data() + end_;
}

Result<std::optional<Message>> InteractiveReader::next(std::optional<std::size_t> payload_size) {
  const std::optional<Message> incomplete;
  const std::string_view held(buffer_.data() + begin_, end_ - begin_);
  if (held.empty() || held.size() < needed_)
    return incomplete;
  needed_ = 0;
  const std::size_t newline = held.find('\n');
  if (std::min(newline, held.size()) >= protocol::max_line)
    return resource_exhausted("a line of LLVM's protocol is longer than " + std::to_string(protocol::max_line) +
                              " bytes");
  if (newline == std::string_view::npos)
    return incomplete;
  const std::string_view line = held.substr(0, newline + 1);
  if (!starts_with(line, "{\"observation\":")) {
    const bool context = starts_with(line, "{\"context\":");
    if (!context && !starts_with(line, "{\"features\":"))
      return malformed(line);
    begin_ += line.size();
    return std::optional(Message{context ? Message::Kind::Context : Message::Kind::Header, line, {}});
  }
  if (!announces_observation(line))
    return malformed(line);
  if (!payload_size)
    return invalid_argument("an observation came before the header line with the features");
  needed_ = line.size() + *payload_size + 1;
  if (held.size() < needed_)
    return incomplete;
  const std::string_view whole = held.substr(0, std::exchange(needed_, 0));
  if (whole.back() != '\n')
    return invalid_argument("an observation of " + std::to_string(*payload_size) + " bytes does not end in a newline");
  begin_ += whole.size();
  return std::optional(Message{Message::Kind::Observation, line, whole.substr(line.size(), *payload_size)});
}

} // namespace policybridge

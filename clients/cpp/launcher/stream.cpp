#include "stream.h"

#include "utf8.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace policybridge {

namespace {

constexpr std::size_t piece = 1 << 16;
constexpr std::size_t longest_line = 1 << 20;

bool starts_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

Error foreign(std::string_view line) {
  return Error::policy(InvalidArgument,
                       "not a line of LLVM's stream (\"features\", \"context\" or \"observation\"): '" +
                           printable(line.substr(0, line.find('\n'))) + "'");
}

bool announces_observation(std::string_view line) {
  constexpr std::size_t number = std::string_view("{\"observation\":").size();
  const std::string_view digits = line.substr(number, line.size() - std::min(line.size(), number + 2));
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos &&
         line.substr(line.size() - 2) == "}\n";
}

} // namespace

StreamReader::StreamReader() : buffer_(2 * piece) {}

char *StreamReader::space(std::size_t &size) {
  if (begin_ == end_)
    begin_ = end_ = 0;
  if (buffer_.size() - end_ < piece) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  if (buffer_.size() - end_ < piece)
    buffer_.resize(std::max(2 * buffer_.size(), needed_ + piece));
  size = buffer_.size() - end_;
  return buffer_.data() + end_;
}

Result<std::optional<Event>> StreamReader::next(std::optional<std::size_t> payload) {
  const std::string_view held(buffer_.data() + begin_, end_ - begin_);
  if (held.empty() || held.size() < needed_)
    return std::optional<Event>();
  needed_ = 0;
  const std::size_t newline = held.find('\n');
  if (std::min(newline, held.size()) >= longest_line)
    return Error::policy(ResourceExhausted,
                         "a line of LLVM's stream is longer than " + std::to_string(longest_line) + " bytes");
  if (newline == std::string_view::npos)
    return std::optional<Event>();
  const std::string_view line = held.substr(0, newline + 1);
  if (!starts_with(line, "{\"observation\":")) {
    const bool context = starts_with(line, "{\"context\":");
    if (!context && !starts_with(line, "{\"features\":"))
      return foreign(line);
    begin_ += line.size();
    return std::optional(Event{context ? Event::Kind::Context : Event::Kind::Header, line, {}});
  }
  if (!announces_observation(line))
    return foreign(line);
  if (!payload)
    return Error::policy(InvalidArgument, "an observation came before the header line with the features");
  needed_ = line.size() + *payload + 1;
  if (held.size() < needed_)
    return std::optional<Event>();
  const std::string_view whole = held.substr(0, std::exchange(needed_, 0));
  if (whole.back() != '\n')
    return Error::policy(InvalidArgument,
                         "an observation of " + std::to_string(*payload) + " bytes does not end in a newline");
  begin_ += whole.size();
  return std::optional(Event{Event::Kind::Observation, whole, whole.substr(line.size(), *payload)});
}

} // namespace policybridge

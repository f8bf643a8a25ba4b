#include "response_files.h"

#include "files.h"
#include "words.h"

#include <algorithm>

namespace policybridge {

namespace {

constexpr std::string_view spaces = " \t\n\r\f\v";

/// The words of a file: quotes of both kinds keep spaces, and a backslash keeps any byte.
Strings words_of(std::string_view text) {
  Strings words;
  char quote = 0;
  bool is_inside = false;
  for (std::size_t place = 0; place < text.size(); ++place) {
    const char byte = text[place];
    const bool is_escape = byte == '\\' && place + 1 < text.size();
    if (!quote && spaces.find(byte) != spaces.npos) {
      is_inside = false;
      continue;
    }
    if (!is_inside)
      words.emplace_back();
    is_inside = true;
    if (is_escape)
      words.back() += text[++place];
    else if (quote ? byte == quote : byte == '"' || byte == '\'')
      quote = quote ? 0 : byte;
    else
      words.back() += byte;
  }
  return words;
}

/// @param within the files that are being read.
void expand(const Strings &arguments, Strings &within, Strings &all) {
  for (const std::string &word : arguments) {
    // What a pipe has can be read once, and is the compiler's.
    const bool is_new = starts_with(word, "@") && is_file(word.substr(1)) && !holds(within, word);
    const Result<std::string> content = is_new ? read_file(word.substr(1)) : Result<std::string>(std::string());
    if (!is_new || !content.ok()) {
      all.push_back(word);
      continue;
    }
    within.push_back(word);
    expand(words_of(*content), within, all);
    within.pop_back();
  }
}

} // namespace

Strings expanded(const Strings &arguments) {
  Strings within, all;
  expand(arguments, within, all);
  return all;
}

} // namespace policybridge

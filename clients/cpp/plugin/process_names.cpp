#include "process_names.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string_view>
#include <unistd.h>

namespace policybridge::plugin {
namespace {

bool is_plain(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) || letter == '.' || letter == '_' || letter == '-';
}

void replace_all(std::string &text, std::string_view what, const std::string &by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

} // namespace

std::vector<std::string> own_command() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');)
    words.push_back(word);
  return words;
}

std::string file_of(std::string pattern, std::string name) {
  std::replace_if(name.begin(), name.end(), [](char letter) { return !is_plain(letter); }, '_');
  replace_all(pattern, "%p", std::to_string(getpid()));
  replace_all(pattern, "%m", name);
  return pattern;
}

} // namespace policybridge::plugin

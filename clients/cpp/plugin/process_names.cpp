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

std::vector<std::string> command_of(const std::string &process) {
  std::vector<std::string> words;
  std::ifstream file("/proc/" + process + "/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');)
    words.push_back(word);
  return words;
}

/// Whether a driver started the command, with words of its own: `clang -cc1`, or GCC's cc1 and cc1plus.
bool is_job(const std::vector<std::string> &command) {
  if (command.empty())
    return false;
  const std::string_view program = std::string_view(command[0]).substr(command[0].rfind('/') + 1);
  return program.substr(0, 3) == "cc1" || (command.size() > 1 && command[1] == "-cc1");
}

} // namespace

std::vector<std::string> own_command() { return command_of("self"); }

std::vector<std::string> driver_command() {
  return is_job(own_command()) ? command_of(std::to_string(getppid())) : std::vector<std::string>();
}

std::string file_of(std::string pattern, std::string name) {
  std::replace_if(name.begin(), name.end(), [](char letter) { return !is_plain(letter); }, '_');
  replace_all(pattern, "%p", std::to_string(getpid()));
  replace_all(pattern, "%m", name);
  return pattern;
}

} // namespace policybridge::plugin

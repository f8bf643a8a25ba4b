#include "llvm_version.h"

#include "compiler.h"
#include "files.h"
#include "process.h"
#include "sha256.h"
#include "words.h"

#include <algorithm>
#include <charconv>

namespace policybridge {

namespace {

constexpr int version_milliseconds = 30000;

int version_in(const std::string &output) {
  constexpr std::string_view word = " version ";
  for (std::size_t place = output.find(word); place != std::string::npos; place = output.find(word, place + 1)) {
    const std::string_view before = std::string_view(output).substr(0, place);
    const auto ends = [&before](std::string_view name) {
      return before.size() >= name.size() && before.substr(before.size() - name.size()) == name;
    };
    int version = 0;
    if ((ends("clang") || ends("LLVM")) &&
        std::from_chars(output.data() + place + word.size(), output.data() + output.size(), version).ec == std::errc())
      return version;
  }
  return 0;
}

Result<int> run_version(const Strings &start, Signals &signals) {
  Strings command = start;
  command.emplace_back("--version");
  const Result<std::string> output = output_of(command, signals, version_milliseconds);
  if (output.ok())
    return version_in(*output);
  // A compiler that cannot be started fails with its own message when it is started to compile.
  return signals.received() ? Result<int>(output.status()) : Result<int>(0);
}

void add_matches(const std::string &pattern, Strings &files) {
  for (const std::string &path : matches_of(pattern))
    if (is_file(path))
      files.push_back(real_path(path));
}

// The zig that `python -m ziglang` starts; empty unless exactly one is found.
std::string python_zig(const std::string &python) {
  const std::string prefix = folder_of(folder_of(find_program(python)));
  Strings files;
  add_matches("ziglang/zig", files);
  for (const std::string &folder : split_at_colons(variable("PYTHONPATH")))
    add_matches(folder + "/ziglang/zig", files);
  for (const char *packages : {"/lib/python3*/site-packages", "/lib/python3*/dist-packages"})
    for (const std::string &root : {prefix, prefix == "/usr" ? std::string("/usr/local") : prefix})
      add_matches(root + packages + "/ziglang/zig", files);
  add_matches(variable("HOME") + "/.local/lib/python3*/site-packages/ziglang/zig", files);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files.size() == 1 ? files.front() : "";
}

std::string compiler_file(const Strings &start) {
  if (is_python_zig(start))
    return python_zig(start[start.size() - 4]);
  const bool driver = start.size() > 1 && (start.back() == "cc" || start.back() == "c++");
  const std::string file = real_path(find_program(driver ? start[start.size() - 2] : start.back()));
  // A link to a wrapper (ccache has a folder of them) does not tell which compiler the wrapper starts.
  return is_compiler(file_name(file)) ? file : "";
}

std::string cache_folder() {
  const std::string caches = variable("XDG_CACHE_HOME"), home = variable("HOME");
  if (caches.empty() && home.empty())
    return "";
  return (caches.empty() ? home + "/.cache" : caches) + "/policybridge/llvm-versions";
}

/// The file for an answer about a compiler; empty where its file is not known, or there is no folder.
std::string place_of(const Strings &start, const std::string &question) {
  const std::string key = identity_of(compiler_file(start)), folder = cache_folder();
  return key.empty() || folder.empty() ? "" : folder + "/" + sha256(key + question).substr(0, 32);
}

std::string answer_at(const std::string &place) {
  Result<std::string> text = place.empty() ? Result<std::string>(std::string()) : read_file(place);
  return text.ok() ? *std::move(text) : "";
}

/// Where the cache cannot be written, the next compilation asks again.
void store_answer(const std::string &place, const std::string &answer) {
  if (place.empty())
    return;
  make_folders(folder_of(place));
  (void)write_file(place, answer);
}

/// Stands in the cache for an answer that is no name.
constexpr const char *no_name = "?";

bool is_name(std::string_view text) {
  constexpr std::size_t longest = 32;
  return !text.empty() && text.size() <= longest &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") == std::string_view::npos;
}

} // namespace

Result<int> llvm_version(const Strings &start, Signals &signals) {
  return remembered(start, "", [&] { return run_version(start, signals); });
}

Result<int> remembered(const Strings &start, const std::string &question, const std::function<Result<int>()> &ask) {
  const std::string place = place_of(start, question);
  int answer = 0;
  if (const std::string text = answer_at(place); std::from_chars(text.data(), text.data() + text.size(), answer).ec ==
                                                 std::errc())
    return answer;
  Result<int> fresh = ask();
  if (fresh.ok() && *fresh)
    store_answer(place, std::to_string(*fresh));
  return fresh;
}

std::string remembered_name(const Strings &start, const std::string &question,
                            const std::function<Result<std::string>()> &ask) {
  const std::string place = place_of(start, question);
  if (place.empty())
    return "";
  std::string answer = answer_at(place);
  if (!is_name(answer) && answer != no_name) {
    Result<std::string> fresh = ask();
    if (!fresh.ok())
      return "";
    answer = is_name(*fresh) ? *std::move(fresh) : no_name;
    store_answer(place, answer);
  }
  return answer == no_name ? "" : answer;
}

} // namespace policybridge

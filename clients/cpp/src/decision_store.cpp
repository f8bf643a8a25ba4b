#include "decision_store.h"

#include "lacking.h"
#include "percent.h"
#include "utf8.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

namespace policybridge {

namespace {

constexpr std::string_view first_line = "policybridge-decisions 1\n";
constexpr std::string_view section_word = "module ";
/// Small enough to stay in the processor's cache, and to be allocated without new pages.
constexpr std::size_t chunk = 1 << 16;
/// Far more than a path needs: a longer line is no section's.
constexpr std::size_t longest_line = 1 << 16;
constexpr std::size_t usual_line = 1 << 9;
constexpr std::size_t key_digits = 16;

/// Take the text before `separator`, and the separator, from the front of `text`.
std::string_view take(std::string_view &text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

template <class Number> bool read_number(std::string_view text, int base, Number &number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size();
}

std::optional<DecisionKey> key_of(std::string_view text) {
  const std::string_view hash = take(text, '.');
  DecisionKey key;
  if (hash.size() != key_digits || !read_number(hash, 16, key.hash))
    return std::nullopt;
  return text.empty() || read_number(text, 10, key.nth) ? std::optional(key) : std::nullopt;
}

/// The folders of a path and its last part, without "." and "..". A relative path begins at the working folder.
std::vector<std::string> parts_of(std::string path, bool from_working_folder) {
  char *folder = from_working_folder && path.compare(0, 1, "/") != 0 ? ::getcwd(nullptr, 0) : nullptr;
  if (folder)
    path = folder + ("/" + path);
  std::free(folder);
  std::vector<std::string> parts;
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view part = take(rest, '/');
    if (part == ".." && !parts.empty())
      parts.pop_back();
    else if (!part.empty() && part != "." && part != "..")
      parts.emplace_back(part);
  }
  return parts;
}

/// How many of the last parts are equal.
std::size_t equal_at_the_end(const std::vector<std::string> &one, const std::vector<std::string> &other) {
  const std::size_t most = std::min(one.size(), other.size());
  std::size_t count = 0;
  while (count < most && one[one.size() - 1 - count] == other[other.size() - 1 - count])
    ++count;
  return count;
}

/// Whether the last parts may be equal: quick, because a store has thousands of sections.
bool may_match(const std::string &path, const std::vector<std::string> &parts) {
  return !parts.empty() && path.size() >= parts.back().size() &&
         path.compare(path.size() - parts.back().size(), std::string::npos, parts.back()) == 0;
}

/// Keep the first of equal choices.
void remove_repeated(std::vector<PassChoice> &passes) {
  std::set<std::tuple<std::uint64_t, PassChoice::Action, std::string>> seen;
  const auto is_repeated = [&seen](const PassChoice &choice) {
    return !seen.emplace(choice.function, choice.action, choice.name).second;
  };
  passes.erase(std::remove_if(passes.begin(), passes.end(), is_repeated), passes.end());
}

bool has_digest(const CompiledModule &section, const CompiledModule &module) {
  return !module.digest.empty() && section.digest == module.digest;
}

} // namespace

Result<DecisionStore> DecisionStore::open(const std::string &path) {
  // Without O_NONBLOCK the opening of a named pipe waits for a writer.
  DecisionStore store(path, Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)));
  struct stat about = {};
  if (!store.file_.is_open() || fstat(store.file_.get(), &about))
    return errno == ENOENT ? not_found(lacking("there is no store of decisions at " + path + "; make one (policybridge autotune --store " + path + " -- make)"))
                           : unavailable("the store of decisions cannot be read: " + path + ": " + std::strerror(errno));
  if (!S_ISREG(about.st_mode))
    return invalid_argument(path + " is not a regular file; a store of decisions is one");
  store.size_ = static_cast<std::uint64_t>(about.st_size);
  if (Status status = store.scan(); !status.ok())
    return status;
  return store;
}

Result<std::string> DecisionStore::bytes(std::uint64_t begin, std::uint64_t end) const {
  std::string text(static_cast<std::size_t>(end - begin), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t count = pread(file_.get(), text.data() + have, text.size() - have, static_cast<off_t>(begin + have));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return unavailable(path_ + " cannot be read: " + (count ? std::strerror(errno) : "it has become shorter"));
    have += static_cast<std::size_t>(count);
  }
  return text;
}

Status DecisionStore::broken(std::uint64_t offset, std::string_view why) const {
  std::size_t line = 1;
  for (std::uint64_t at = 0; at < offset; at += chunk)
    if (auto text = bytes(at, std::min<std::uint64_t>(offset, at + chunk)); text.ok())
      line += static_cast<std::size_t>(std::count(text->begin(), text->end(), '\n'));
  return invalid_argument(path_ + ", line " + std::to_string(line) + ": " + std::string(why));
}

Status DecisionStore::scan() {
  auto begin = bytes(0, std::min<std::uint64_t>(size_, first_line.size()));
  if (!begin.ok())
    return begin.status();
  if (*begin != first_line)
    return broken(0, "a store of decisions begins with the line 'policybridge-decisions 1'");
  // Each turn looks at the line ends of one part of the file, and needs `section_word` behind them.
  const std::uint64_t last = section_word.size();
  for (std::uint64_t at = first_line.size() - 1; at < size_; at += chunk) {
    auto text = bytes(at, std::min(size_, at + chunk + last));
    if (!text.ok())
      return text.status();
    const std::string_view part = *text;
    for (std::size_t end = part.find('\n'); end < chunk && end != part.npos; end = part.find('\n', end + 1))
      if (part.compare(end + 1, section_word.size(), section_word) == 0)
        if (Status status = add_section(at + end + 1); !status.ok())
          return status;
  }
  if (size_ > first_line.size() && (sections_.empty() || sections_.front().start != first_line.size()))
    return broken(first_line.size(), "before the first decision comes a line 'module llvm=…'");
  return Status();
}

Status DecisionStore::add_section(std::uint64_t start) {
  auto text = bytes(start, std::min<std::uint64_t>(size_, start + usual_line));
  if (text.ok() && text->find('\n') == std::string::npos)
    text = bytes(start, std::min<std::uint64_t>(size_, start + longest_line));
  if (!text.ok())
    return text.status();
  const std::size_t length = text->find('\n');
  if (length == std::string::npos)
    return broken(start, "the line of a module does not end");
  Section section;
  section.start = start;
  section.begin = start + length + 1;
  section.end = size_;
  std::string_view rest = std::string_view(*text).substr(section_word.size(), length - section_word.size());
  bool has_path = false;
  while (!rest.empty()) {
    std::string_view value = take(rest, ' ');
    const std::string_view name = take(value, '=');
    CompiledModule &module = section.module;
    has_path |= name == "path";
    if (name == "phase") {
      if (value != "link")
        return broken(start, "a phase is link, and absent for every other");
      module.at_link = true;
    }
    for (auto [known, text_of] : {std::pair{"llvm", &module.llvm}, {"level", &module.level}, {"by", &module.by},
                                  {"digest", &module.digest}, {"path", &module.path}})
      if (name == known)
        *text_of = percent_decoded(value);
  }
  if (section.module.level.empty() || section.module.by.empty() || !has_path)
    return broken(start, "a module has llvm=, level=, by=, digest= and path=");
  if (section.module.digest == "-")
    section.module.digest.clear();
  if (!sections_.empty())
    sections_.back().end = start;
  sections_.push_back(std::move(section));
  return Status();
}

const DecisionStore::Section *DecisionStore::find(const CompiledModule &module) const {
  const std::vector<std::string> parts = parts_of(module.path, true);
  const Section *best = nullptr;
  std::tuple<bool, bool, std::size_t> best_rank;
  for (const Section &section : sections_) {
    const CompiledModule &other = section.module;
    if (other.level != module.level || other.by != module.by || other.at_link != module.at_link)
      continue;
    const bool same = has_digest(other, module);
    // One of several modules of a source that LLVM alone decides about has a section without decisions, for its digest.
    const bool is_for_digest = section.begin == section.end && !other.digest.empty();
    const bool is_near = !is_for_digest && may_match(other.path, parts);
    const std::size_t equal = is_near ? equal_at_the_end(parts_of(other.path, false), parts) : 0;
    const std::tuple rank(other.llvm == module.llvm, same, equal);
    if ((equal || same) && (!best || rank > best_rank)) {
      best = &section;
      best_rank = rank;
    }
  }
  return best;
}

std::string DecisionStore::mismatch(const CompiledModule &module) const {
  const auto own = std::find_if(sections_.begin(), sections_.end(), [&module](const Section &section) {
    return section.begin < section.end && is_path_of(section, module);
  });
  if (own == sections_.end())
    return "";
  const CompiledModule &other = own->module;
  const auto phase = [](const CompiledModule &one) { return one.at_link ? "at link time" : "at compile time"; };
  const auto kind = [](const CompiledModule &one) { return "by " + one.by; };
  const auto level = [](const CompiledModule &one) { return "at -" + one.level; };
  const auto differ = [&](const std::string &had, const std::string &wanted) {
    return "has decisions about " + module.path + " " + had + ", and none " + wanted;
  };
  if (other.at_link != module.at_link)
    return differ(phase(other), phase(module));
  return other.level != module.level ? differ(level(other), level(module)) : differ(kind(other), kind(module));
}

bool DecisionStore::is_path_of(const Section &section, const CompiledModule &module) {
  const std::vector<std::string> parts = parts_of(section.module.path, false);
  return equal_at_the_end(parts, parts_of(module.path, true)) == parts.size();
}

Status DecisionStore::read_line(std::string_view line, bool by_site, SectionDecisions &decisions) const {
  const std::string_view shown = line;
  const std::string_view hash = take(line, ' ');
  const std::optional<DecisionKey> key = by_site && hash.size() != key_digits ? std::nullopt : key_of(hash);
  const std::string_view choice = take(line, ' ');
  if (key && (choice == "inline" || choice == "call")) {
    decisions.inlining.emplace(*key, choice == "inline");
    return {};
  }
  if (!key || !is_pass_action(choice))
    return invalid_argument("a decision is 16 hexadecimal digits and inline, call, skip, add, set or keep, not " +
                            quoted(shown));
  if (!by_site)
    return invalid_argument("choices of passes are by site");
  Result<PassChoice> passes = PassChoice::parse(key->hash, choice, take(line, ' '));
  if (!passes.ok())
    return passes.status();
  decisions.passes.push_back(*std::move(passes));
  return {};
}

Result<SectionDecisions> DecisionStore::read(const Section &section) const {
  auto text = bytes(section.begin, section.end);
  if (!text.ok())
    return text.status();
  if (!text->empty() && text->back() != '\n')
    return broken(section.end, "the file ends within a line");
  SectionDecisions decisions;
  for (std::string_view rest = *text; !rest.empty();) {
    const auto offset = section.begin + static_cast<std::uint64_t>(rest.data() - text->data());
    if (Status status = read_line(take(rest, '\n'), section.module.by == "site", decisions); !status.ok())
      return broken(offset, status.message());
  }
  remove_repeated(decisions.passes);
  return decisions;
}

} // namespace policybridge

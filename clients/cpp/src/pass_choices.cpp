#include "pass_choices.h"

#include "utf8.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace policybridge {

namespace {

using Action = PassChoice::Action;

struct NeverChosen {
  std::string_view name;
  std::string_view why;
};

constexpr KnownPass passes[] = {
#define PASS(stage, name, title) {KnownPass::Stage::stage, name, title},
#include "pass_choices.def"
};

constexpr KnownPipeline pipelines[] = {
#define PIPELINE(scope, text) {KnownPipeline::Scope::scope, text},
#include "pass_choices.def"
};

constexpr KnownSwitch switches[] = {
#define SWITCH(name, pass, options) {name, pass, options},
#include "pass_choices.def"
};

constexpr NeverChosen never_chosen[] = {
#define NEVER(name, why) {name, why},
#include "pass_choices.def"
};

constexpr PassAlternative alternatives[] = {
#define ALTERNATIVE(name, choices) {name, choices},
#include "pass_choices.def"
};

constexpr std::pair<std::string_view, Action> actions[] = {
    {"skip", Action::skip}, {"add", Action::add}, {"set", Action::set}, {"keep", Action::keep}};
constexpr std::pair<std::string_view, PassChoice::Point> points[] = {{"early", PassChoice::Point::early},
                                                                     {"last", PassChoice::Point::last}};
constexpr unsigned most_runs = 1'000'000;

template <class Table, class Member>
auto find_in(const Table &table, Member member, std::string_view wanted) -> decltype(std::begin(table)) {
  const auto found =
      std::find_if(std::begin(table), std::end(table), [&](const auto &row) { return row.*member == wanted; });
  return found == std::end(table) || wanted.empty() ? nullptr : found;
}

} // namespace

const KnownPass *find_pass(std::string_view name) { return find_in(passes, &KnownPass::name, name); }

const KnownPass *find_pass_by_title(std::string_view title) { return find_in(passes, &KnownPass::title, title); }

const KnownPipeline *find_pipeline(std::string_view text) { return find_in(pipelines, &KnownPipeline::text, text); }

const KnownSwitch *find_switch(std::string_view name) { return find_in(switches, &KnownSwitch::name, name); }

bool is_pass_action(std::string_view word) {
  return find_in(actions, &std::pair<std::string_view, Action>::first, word) != nullptr;
}

Span<const PassAlternative> pass_alternatives() { return {alternatives, std::size(alternatives)}; }

std::vector<PassChoice> PassAlternative::of(std::uint64_t function) const {
  constexpr std::string_view between = " + ";
  std::vector<PassChoice> made;
  for (std::size_t at = 0; at < choices.size();) {
    const std::size_t end = std::min(choices.find(between, at), choices.size());
    const std::string_view words = choices.substr(at, end - at);
    const std::size_t space = words.find(' ');
    // A test reads every row of the table.
    if (auto choice = PassChoice::parse(function, words.substr(0, space), words.substr(space + 1)); choice.ok())
      made.push_back(*std::move(choice));
    at = end + between.size();
  }
  return made;
}

Result<PassChoice> PassChoice::parse(std::uint64_t function, std::string_view action, std::string_view name) {
  const auto *known = find_in(actions, &std::pair<std::string_view, Action>::first, action);
  if (!known)
    return invalid_argument("a choice of passes is skip, add, set or keep, not " + quoted(action));
  PassChoice choice;
  choice.function = function;
  choice.action = known->second;
  choice.name = name;
  if (Status status = choice.read_name(); !status.ok())
    return status;
  return choice;
}

Status PassChoice::read_name() {
  switch (action) {
  case Action::skip:
    return read_skipped();
  case Action::add:
    return read_added();
  case Action::set:
    return read_set();
  case Action::keep:
    break;
  }
  if (function == all_functions)
    return invalid_argument("keep exempts one function from a choice for all; it is not for all functions");
  if (find_switch(name))
    return read_set();
  return name.find('@') == std::string::npos ? read_skipped() : read_added();
}

Status PassChoice::read_skipped() {
  const std::size_t dot = std::min(name.find('.'), name.size());
  const std::string_view wanted = std::string_view(name).substr(0, dot);
  if (const NeverChosen *never = find_in(never_chosen, &NeverChosen::name, wanted))
    return invalid_argument(std::string(wanted) + " is never skipped: " + std::string(never->why));
  pass = find_pass(wanted);
  if (!pass)
    return invalid_argument("no pass that may be skipped is called " + quoted(wanted));
  if (dot == name.size())
    return {};
  unsigned run = 0;
  const auto [end, error] = std::from_chars(name.data() + dot + 1, name.data() + name.size(), run);
  if (error != std::errc() || end != name.data() + name.size() || run >= most_runs)
    return invalid_argument("behind a pass comes nothing, or a dot and which of its runs, not " + quoted(name));
  nth = run;
  return {};
}

Status PassChoice::read_added() {
  const std::size_t at = std::min(name.rfind('@'), name.size());
  const std::string_view wanted = std::string_view(name).substr(0, at);
  if (const NeverChosen *never = find_in(never_chosen, &NeverChosen::name, wanted))
    return invalid_argument(std::string(wanted) + " is never added: " + std::string(never->why));
  pipeline = find_pipeline(wanted);
  const auto *where = at == name.size() ? nullptr
                                        : find_in(points, &std::pair<std::string_view, Point>::first,
                                                  std::string_view(name).substr(at + 1));
  if (!pipeline || !where)
    return invalid_argument("passes that may be added are one of the documented pipelines with @early or @last, not " +
                            quoted(name));
  point = where->second;
  if (pipeline->scope == KnownPipeline::Scope::module && action == Action::add && function != all_functions)
    return invalid_argument(std::string(pipeline->text) + " is added to a module, not to one function");
  if (pipeline->scope == KnownPipeline::Scope::module && point != Point::last)
    return invalid_argument(std::string(pipeline->text) + " is added @last alone");
  return {};
}

Status PassChoice::read_set() {
  if (const NeverChosen *never = find_in(never_chosen, &NeverChosen::name, name))
    return invalid_argument(name + " is never set: " + std::string(never->why));
  option = find_switch(name);
  return option ? Status() : invalid_argument("no switch is called " + quoted(name));
}

} // namespace policybridge

// Stores of decisions about inlining and passes, as a file that a plugin opens.
#include "decision_store.h"
#include "fuzzing.h"

#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace policybridge {

namespace {

/// A choice that was read stands in the tables, and is read again as it is.
void check(const PassChoice &choice) {
  constexpr const char *actions[] = {"skip", "add", "set", "keep"};
  const auto again = PassChoice::parse(choice.function, actions[static_cast<int>(choice.action)], choice.name);
  promise(again.ok(), "a choice of a store is read again");
  promise(again->pass == choice.pass && again->nth == choice.nth && again->pipeline == choice.pipeline &&
              again->option == choice.option,
          "a choice says the same each time");
  promise(choice.pass || choice.pipeline || choice.option, "a choice is about something in the tables");
}

void read(const DecisionStore &store) {
  for (const DecisionStore::Section &section : store.sections()) {
    promise(section.start < section.begin && section.begin <= section.end, "a section lies behind its line");
    const auto decisions = store.read(section);
    if (!decisions.ok()) {
      promise(!decisions.status().message().empty(), "a broken section says why");
      continue;
    }
    promise(section.module.by == "site" || decisions->passes.empty(), "choices of passes stand by site alone");
    for (const PassChoice &choice : decisions->passes)
      check(choice);
  }
}

} // namespace

} // namespace policybridge

extern "C" int LLVMFuzzerTestOneInput(const unsigned char *bytes, std::size_t size) {
  using namespace policybridge;
  static const int file = ::memfd_create("store", MFD_CLOEXEC);
  promise(file >= 0 && ::ftruncate(file, 0) == 0, "there is a file");
  promise(::pwrite(file, bytes, size, 0) == static_cast<ssize_t>(size), "the file takes the input");
  const auto store = DecisionStore::open("/proc/self/fd/" + std::to_string(file));
  if (store.ok())
    read(*store);
  else
    promise(!store.status().message().empty(), "a file that is no store says why");
  return 0;
}

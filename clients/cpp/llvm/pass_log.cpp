// The format: lines that end in \n, with tabs between the columns. Names are percent-encoded: bytes up to a space, 0x7f
// and '%' are %XX.
//
// The first line: `policybridge-passes 1`, the module's digest, its level (Oz, Os or O2), its path.
//
// Each other line is one optional pass that LLVM asked about for a function, in the order in which the runs ended:
//   key        the function's, in 16 hexadecimal digits, as in a store
//   stage      ir or codegen
//   pass       as a store names it, where it may be chosen; else as LLVM does
//   nth        which run of this pass on this function, from 0
//   ran        whether it ran: 0 or 1
//   changed    whether the pass says that it changed the function: 0 or 1; empty in code generation, which does not tell
//   function   its name
//
// A compiler may end without destroying anything, so that each line of code generation is written at once.

#include "pass_log.h"

#include "module_names.h"
#include "pass_choices.h"
#include "sha256.h"
#include "telling.h"

#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace policybridge::plugin {
namespace {

StringRef as_in_a_store(StringRef pass) {
  const KnownPass *known = find_pass_by_title({pass.data(), pass.size()});
  return known ? StringRef(known->name.data(), known->name.size()) : pass;
}

} // namespace

std::unique_ptr<PassLog> PassLog::open(const std::string &path, StringRef first_line) {
  std::error_code error;
  auto out = std::make_unique<raw_fd_ostream>(path, error);
  if (error) {
    remark("no log of passes: " + path + ": " + error.message());
    return nullptr;
  }
  out->SetUnbuffered();
  *out << (first_line + "\n").str();
  return std::unique_ptr<PassLog>(new PassLog(std::move(out)));
}

PassLog::Run PassLog::next(StringRef function, StringRef pass) {
  const unsigned nth = runs_[(function + Twine('\0') + pass).str()]++;
  return {lasting_name(function).str(), pass.str(), nth};
}

void PassLog::ask(StringRef function, StringRef pass) { asked_ = next(function, pass); }

void PassLog::skip(StringRef pass) {
  if (asked_.pass == pass)
    write("ir", asked_, "0", "0");
  asked_ = Run();
}

void PassLog::begin(StringRef pass) {
  running_.push_back(asked_.pass == pass ? std::move(asked_) : Run());
  asked_ = Run();
}

void PassLog::end(bool changed) {
  if (running_.empty())
    return;
  if (!running_.back().pass.empty())
    write("ir", running_.back(), "1", changed ? "1" : "0");
  running_.pop_back();
}

void PassLog::add_codegen(StringRef function, StringRef pass, bool runs) {
  write("codegen", next(function, as_in_a_store(pass)), runs ? "1" : "0", "");
}

void PassLog::write(StringRef stage, const Run &run, StringRef ran, StringRef changed) {
  std::string line;
  raw_string_ostream(line) << utohexstr(sha256_head(run.function), true, 16) << '\t' << stage << '\t'
                           << encoded(run.pass) << '\t' << run.nth << '\t' << ran << '\t' << changed << '\t'
                           << encoded(run.function) << '\n';
  *out_ << line;
}

} // namespace policybridge::plugin

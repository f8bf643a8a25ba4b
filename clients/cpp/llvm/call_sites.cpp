#include "call_sites.h"

#include "sha256.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Metadata.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/xxhash.h"

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// LLVM has this kind for global variables alone, copies it as it copies kinds that it does not know, and never asks a
/// call for it.
constexpr unsigned metadata_kind = LLVMContext::MD_exclude;

/// The function, alias or ifunc that is called; null for an indirect call.
const GlobalValue *callee_of(const CallBase &call) {
  return dyn_cast<GlobalValue>(call.getCalledOperand()->stripPointerCasts());
}

/// Whether the inliner can ever ask about a call: not about inline assembly, nor about a function without a body here.
bool may_be_asked(const CallBase &call) {
  if (call.isInlineAsm())
    return false;
  const GlobalValue *callee = callee_of(call);
  return !callee || !callee->isDeclaration();
}

} // namespace

CallSites::CallSites(Module &module) : module_(module), lasting_(module) {
  for (Function &function : module)
    if (!function.isDeclaration())
      number(function);
  indices_.clear();
}

std::uint32_t CallSites::name_of(StringRef name) {
  if (const auto index = indices_.find(name); index != indices_.end())
    return index->second;
  names_.push_back(name.str());
  return indices_[names_.back()] = static_cast<std::uint32_t>(names_.size() - 1);
}

void CallSites::number(Function &function) {
  LLVMContext &context = function.getContext();
  const std::uint32_t origin = name_of(lasting_.of(function.getName()));
  DenseMap<const GlobalValue *, unsigned> counts;
  unsigned indirect = 0;
  for (Instruction &instruction : instructions(function)) {
    auto *call = dyn_cast<CallBase>(&instruction);
    if (!call || isa<IntrinsicInst>(call) || !may_be_asked(*call) || call->hasMetadata(metadata_kind))
      continue;
    const GlobalValue *callee = callee_of(*call);
    const unsigned which = callee ? counts[callee]++ : indirect++;
    // Its text is like none of the source. It is not distinct, because a pass that copies a function, as the one that
    // splits coroutines does, copies distinct nodes, and a copy would be neither found nor taken off.
    MDNode *node = MDNode::get(context, MDString::get(context, "policybridge site " + utostr(calls_.size())));
    calls_[node] = {origin, name_of(callee ? lasting_.of(callee->getName()) : ""), which};
    call->setMetadata(metadata_kind, node);
  }
}

const CallSites::Numbered *CallSites::find(const CallBase &call) const {
  const MDNode *node = call.getMetadata(metadata_kind);
  const auto numbered = node ? calls_.find(node) : calls_.end();
  return numbered == calls_.end() ? nullptr : &numbered->second;
}

Site CallSites::ask(const CallBase &call) {
  Site site;
  site.caller = lasting_.of(call.getCaller()->getName());
  if (const Numbered *numbered = find(call)) {
    site.origin = names_[numbered->origin];
    site.callee = names_[numbered->callee];
    site.number = numbered->number;
  } else {
    site.callee = lasting_.of(call.getCalledFunction()->getName());
  }
  SmallString<256> text;
  for (const StringRef part : {site.caller, site.origin, site.callee}) {
    text += part;
    text.push_back('\0');
  }
  text += utostr(site.number);
  site.occurrence = asked_[xxh3_64bits(text.str())]++;
  text.push_back('\0');
  text += utostr(site.occurrence);
  site.key = sha256_head({text.data(), text.size()});
  return site;
}

void CallSites::strip() {
  if (calls_.empty())
    return;
  for (Function &function : module_)
    for (Instruction &instruction : instructions(function))
      if (const MDNode *node = instruction.getMetadata(metadata_kind); node && calls_.count(node))
        instruction.setMetadata(metadata_kind, nullptr);
  calls_.clear();
}

namespace {

// clang names the function of a file's initialisers after the file (CodeGenModule::EmitCXXGlobalInitFunc), and a module
// stays the same if its file is renamed.
StringRef name_without_file(const Function &function) {
  constexpr StringLiteral initialisers = "_GLOBAL__sub_I_";
  const StringRef name = lasting_name(function.getName());
  return name.starts_with(initialisers) ? StringRef(initialisers) : name;
}

} // namespace

const char *level_of(const Module &module) {
  std::size_t minsize = 0, optsize = 0, neither = 0;
  for (const Function &function : module)
    if (!function.isDeclaration())
      ++(function.hasMinSize() ? minsize : function.hasOptSize() ? optsize : neither);
  return minsize >= optsize && minsize >= neither && minsize ? "Oz" : optsize >= neither && optsize ? "Os" : "O2";
}

ModuleTraits ModuleTraits::of(const Module &module) {
  std::string text, all;
  for (const Function &function : module) {
    if (function.isDeclaration())
      continue;
    text.assign(name_without_file(function)).push_back('\0');
    for (const Instruction &instruction : instructions(function)) {
      if (isa<DbgInfoIntrinsic>(instruction))
        continue;
      text += static_cast<char>(instruction.getOpcode());
      if (const auto *call = dyn_cast<CallBase>(&instruction))
        if (const GlobalValue *callee = callee_of(*call))
          text.append(lasting_name(callee->getName())).push_back('\0');
    }
    const std::uint64_t hash = xxh3_64bits(StringRef(text));
    for (int shift = 56; shift >= 0; shift -= 8)
      all += static_cast<char>(hash >> shift);
  }
  const std::uint64_t digest = xxh3_64bits(StringRef(all));
  return {level_of(module), utohexstr(digest, true, 16)};
}

} // namespace policybridge::plugin

"""A class for LLVM's ReleaseModeModelRunner (llvm/Analysis/ReleaseModeModelRunner.h), over the policy's C."""

import re

from policybridge_core.version import version
from policybridge_train.embedding.interface import Embedded
from policybridge_train.embedding.text import comment, included


def class_name(prefix: str) -> str:
    """Give the class's name: ``my_inliner`` is MyInlinerModel."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"_+", prefix) if word) + "Model"


def write_class(policy: Embedded, prefix: str, include: str) -> str:
    """Write the header of the class; ``include`` is the name of that of the C."""
    name, upper = class_name(prefix), prefix.upper()
    return f"""\
// {comment(policy.identity)}
// Made by policybridge {version()}; do not edit.
#ifndef {upper}_MODEL_HPP
#define {upper}_MODEL_HPP

#include {included(include)}

#include <cstring>
#include <string>

/// The policy in the form that llvm::ReleaseModeModelRunner takes:
///
///   llvm::ReleaseModeModelRunner<{name}> runner(context, features, "inlining_decision");
class {name} {{
public:
  {name}() {{ {prefix}_fill(&observation_); }}

  /// The number of the feature "feed_NAME"; -1 where the policy does not take it.
  int LookupArgIndex(const std::string &name) {{
    const char *bare = without(name, "feed_");
    for (std::size_t index = 0; index < {prefix}_feature_count; ++index)
      if (std::strcmp(bare, {prefix}_features[index].name) == 0) {{
        fed_[index] = true;
        return static_cast<int>(index);
      }}
    return -1;
  }}

  /// The number of the advice, "fetch_NAME", whatever the compiler calls it: there is one.
  int LookupResultIndex(const std::string &name) const {{ return without(name, "fetch_") == name.c_str() ? -1 : 0; }}

  void *arg_data(int index) {{ return reinterpret_cast<char *>(&observation_) + {prefix}_features[index].offset; }}
  void *result_data(int) {{ return &advice_; }}

  /// Decide. LLVM has no place for an error: after one, the advice is 0, and `status` gives its number.
  void Run() {{
    status_ = {prefix}_decide(&observation_, &advice_);
    if (status_ != {upper}_OK)
      std::memset(&advice_, 0, sizeof advice_);
  }}

  /// The result of the last {prefix}_decide; {prefix}_status_text describes it.
  int status() const {{ return status_; }}

  /// A feature that the policy needs, and that nobody has looked up; null where there is none.
  const char *missing() const {{
    for (std::size_t index = 0; index < {prefix}_feature_count; ++index)
      if (!fed_[index] && !{prefix}_features[index].has_default)
        return {prefix}_features[index].name;
    return nullptr;
  }}

private:
  static const char *without(const std::string &name, const char *prefix) {{
    const std::size_t size = std::strlen(prefix);
    return name.compare(0, size, prefix) == 0 ? name.c_str() + size : name.c_str();
  }}

  {prefix}_observation observation_;
  {prefix}_advice advice_ = {{}};
  bool fed_[{max(len(policy.members), 1)}] = {{}};
  int status_ = {upper}_OK;
}};

#endif
"""

/// The trace context of a compilation's build: W3C Trace Context, from the environment variable TRACEPARENT.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

namespace policybridge {

/// Adds the build's trace context to the labels of a session, so that the spans of a tracing server are its children.
inline void add_trace_context(std::map<std::string, std::string> &labels) {
  const char *set = std::getenv("TRACEPARENT");
  const std::string context = set ? set : "";
  // Version 00 of the format has 55 characters.
  const bool plain = std::all_of(context.begin(), context.end(), [](char each) { return each > ' ' && each < 127; });
  if (!context.empty() && context.size() <= 128 && plain)
    labels.emplace("traceparent", context);
}

} // namespace policybridge

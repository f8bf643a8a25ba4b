#include "session_forms.h"

#include "form_cache.h"
#include "form_program.h"

#include <utility>

namespace policybridge {

namespace {

/// Of the form of a server whose answers take microseconds. More take longer to check than some hundred answers.
constexpr std::uint64_t most_near_bytes = std::uint64_t{1} << 20;

std::uint64_t most_bytes(Evaluate evaluate, const Session &server) {
  const bool is_near = server.server().compare(0, 7, "socket:") == 0;
  return evaluate == Evaluate::Auto && is_near ? most_near_bytes : std::uint64_t(-1);
}

} // namespace

bool takes_forms(Evaluate evaluate, const TensorSpec &advice) {
  const bool is_exact = advice.type != ElementType::Float && advice.type != ElementType::Double;
  return evaluate == Evaluate::Here || (evaluate == Evaluate::Auto && is_exact);
}

const FormReference *form_for(const SessionInfo &info, const std::string &kind, Evaluate evaluate, const Session &server) {
  for (const std::string &name : {kind, std::string()})
    if (const auto found = info.forms.find(name); found != info.forms.end())
      return found->second.bytes <= most_bytes(evaluate, server) ? &found->second : nullptr;
  return nullptr;
}

Result<std::optional<Form>> read_form(Session &server, const FormReference &reference) {
  const FormCache cache;
  std::optional<std::string> bytes = cache.find(reference.digest);
  if (!bytes) {
    if (reference.bytes > forms::most_form_bytes)
      return resource_exhausted("the server announces a form of " + std::to_string(reference.bytes) +
                                " bytes; at most " + std::to_string(forms::most_form_bytes) + " are taken");
    Result<std::string> sent = server.form(reference);
    if (!sent.ok())
      return sent.status();
    if (!is_form_of(reference.digest, *sent))
      return invalid_argument("the server sent another form than " + reference.digest);
    cache.keep(reference.digest, *sent);
    bytes = *std::move(sent);
  }
  Result<Form> form = Form::read(*bytes);
  return form.ok() ? std::optional<Form>(*std::move(form)) : std::nullopt;
}

} // namespace policybridge

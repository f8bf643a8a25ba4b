// Portable forms: bytes that are refused, or that decide twice alike without touching memory that they may not.
#include "fuzzing.h"
#include "policybridge/form.h"
#include "policybridge/session.h"

#include <cstring>
#include <string>
#include <vector>

namespace policybridge {

namespace {

/// The outcome, the scores and the advice about an observation of this byte.
std::string decide(FormEvaluator &evaluator, const Form &form, int byte) {
  std::memset(evaluator.observation(), byte, form.observation_size());
  std::string advice(static_cast<std::size_t>(form.advice().byte_size()), '\0');
  std::string made(1, static_cast<char>(evaluator.evaluate(advice.data())));
  if (made[0] != static_cast<char>(FormOutcome::BadIndex))
    made.append(static_cast<const char *>(evaluator.scores()), form.score_count() * element_size(form.score_type()));
  return made + advice;
}

/// The outcome, the advice and its log-probability, drawn.
std::string draw(FormEvaluator &evaluator, const Form &form, int byte) {
  std::memset(evaluator.observation(), byte, form.observation_size());
  std::string advice(static_cast<std::size_t>(form.advice().byte_size()), '\0');
  float chance = 1;
  const FormOutcome outcome = evaluator.draw({7, 0.5, 0.1}, 3, advice.data(), chance);
  promise(chance <= 0 && chance - chance == 0, "a log-probability is finite and 0 at most");
  return std::string(1, static_cast<char>(outcome)).append(advice) + std::to_string(chance);
}

} // namespace

} // namespace policybridge

extern "C" int LLVMFuzzerTestOneInput(const unsigned char *bytes, std::size_t size) {
  using namespace policybridge;
  const Result<Form> form = Form::read({reinterpret_cast<const char *>(bytes), size});
  if (!form.ok()) {
    promise(!form.status().message().empty(), "bytes that are no form say why");
    return 0;
  }
  FormEvaluator evaluator(*form);
  FormEvaluator other(*form);
  for (const int byte : {0, 1, 0x7F, 0xFF}) {
    const std::string made = decide(evaluator, *form, byte);
    promise(made == decide(evaluator, *form, byte), "a decision depends on nothing before it");
    promise(made == decide(other, *form, byte), "each evaluator decides alike");
    const std::string drawn = draw(evaluator, *form, byte);
    promise(drawn[0] == made[0], "a draw fails where a decision fails");
    promise(drawn == draw(other, *form, byte), "each evaluator draws alike");
  }
  return 0;
}

#ifndef POLICYBRIDGE_FORM_H
#define POLICYBRIDGE_FORM_H

#include "policybridge/status.h"
#include "policybridge/tensor_spec.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

struct Exploration;

namespace forms {
struct Program;
} // namespace forms

/// A feature of a form's observation.
struct FormFeature {
  /// Its name, type and shape.
  TensorSpec spec;
  /// Its place in the observation, in bytes.
  std::size_t offset = 0;
  /// Whether `fill` stands for it where it is not known.
  bool has_fill = false;
  /// The bytes of all its elements.
  std::string fill;
};

/// A portable form of a policy version, read and checked: see docs/forms.md. It is immutable; copies share it, and any
/// number of threads may use it, each with an evaluator of its own.
class Form {
public:
  /// Read a form and check it against every bound, so that no decision touches memory that it may not. The bytes must not
  /// change meanwhile, and are not needed later.
  /// InvalidArgument: the bytes are no form, or break a rule. ResourceExhausted: it exceeds a bound.
  static Result<Form> read(std::string_view bytes);

  /// The digest of the policy version that it was made of: "sha256:" and hexadecimal digits.
  std::string digest() const;
  /// The features in the order of their places.
  const std::vector<FormFeature> &features() const noexcept;
  /// The specification of the advice.
  const TensorSpec &advice() const noexcept;
  /// Bytes of one observation.
  std::size_t observation_size() const noexcept;
  /// How many elements `FormEvaluator::scores` gives: one for each choice, or those of the advice.
  std::size_t score_count() const noexcept;
  /// The type of these elements: float or double of scores, else that of the choice or the advice.
  ElementType score_type() const noexcept;

private:
  friend class FormEvaluator;
  explicit Form(std::shared_ptr<const forms::Program> program) noexcept : program_(std::move(program)) {}

  std::shared_ptr<const forms::Program> program_;
};

/// The outcome of one decision by a form.
enum class FormOutcome : int {
  Ok = 0,
  Nan = 1,
  NoLegalChoice = 2,
  IllegalChoice = 3,
  BadIndex = 4,
};

/// The outcome in words, as in messages.
const char *to_string(FormOutcome outcome) noexcept;

/// Decides by a form. It has the memory of one decision, so it is for one thread at a time; a decision allocates none.
class FormEvaluator {
public:
  explicit FormEvaluator(const Form &form);
  ~FormEvaluator();
  FormEvaluator(FormEvaluator &&) noexcept;
  FormEvaluator &operator=(FormEvaluator &&) noexcept;

  /// The observation that the next decision is about, `observation_size` bytes: its features at their offsets, at
  /// first their defaults, or 0.
  char *observation() noexcept;

  /// Decide about `observation()`; without Ok `advice` is left as it is, and else has the bytes of the advice.
  FormOutcome evaluate(void *advice) noexcept;

  /// Decide, and draw the choice as a session that explores: number `number` of its decisions, counted from 1. Of a form
  /// without choices the advice is that of `evaluate`, and the log-probability is 0, as it is without Ok.
  FormOutcome draw(const Exploration &exploration, std::uint64_t number, void *advice, float &log_probability) noexcept;

  /// The scores of the last decision, before the head: `score_count` elements.
  const void *scores() const noexcept;

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace policybridge

#endif

#include "policybridge/form.h"

#include "form_program.h"
#include "form_reader.h"

#include <algorithm>
#include <cstring>

namespace policybridge {

namespace forms {

ElementType element_type_of(Kind kind) noexcept {
  constexpr std::array<ElementType, kinds> types = {
      ElementType::Bool,  ElementType::Int8,   ElementType::UInt8, ElementType::Int16,  ElementType::UInt16, ElementType::Int32,
      ElementType::UInt32, ElementType::Int64, ElementType::UInt64, ElementType::Float, ElementType::Double};
  return types[static_cast<std::size_t>(kind)];
}

} // namespace forms

Result<Form> Form::read(std::string_view bytes) {
  const auto program = std::make_shared<forms::Program>();
  if (Status status = forms::read_program(bytes, *program); !status.ok())
    return status;
  if (Status status = forms::check_program(*program); !status.ok())
    return status;
  std::vector<std::shared_ptr<const forms::Walk>> walks(program->forests.size());
  // Of a forest that an instruction takes alone: its columns have been checked.
  const auto walk_of = [&](std::size_t number) {
    std::shared_ptr<const forms::Walk> &walk = walks[number];
    if (!walk)
      walk = forms::walk_of(program->forests[number]);
    program->tests = std::max(program->tests, walk->tests);
    program->trees = std::max(program->trees, walk->trees);
    return walk;
  };
  for (forms::Instruction &each : program->instructions) {
    each.run = forms::run_of(each);
    if (!each.run)
      return invalid_argument("the form has an instruction that this program does not run");
    if (each.opcode == forms::Opcode::Forest)
      each.walk = walk_of(each.sizes[0]);
  }
  // The walks have all that they say.
  program->forests.clear();
  return Form(program);
}

std::string Form::digest() const {
  constexpr char digits[] = "0123456789abcdef";
  std::string made = "sha256:";
  for (const unsigned char byte : program_->digest)
    (made += digits[byte >> 4]) += digits[byte & 15];
  return made;
}

const std::vector<FormFeature> &Form::features() const noexcept { return program_->features; }

const TensorSpec &Form::advice() const noexcept { return program_->advice; }

std::size_t Form::observation_size() const noexcept { return program_->observation; }

std::size_t Form::score_count() const noexcept { return program_->result_count(); }

ElementType Form::score_type() const noexcept { return forms::element_type_of(program_->result.kind); }

const char *to_string(FormOutcome outcome) noexcept {
  switch (outcome) {
  case FormOutcome::Ok:
    return "there is advice";
  case FormOutcome::Nan:
    return "the policy gave NaN, or a negative probability";
  case FormOutcome::NoLegalChoice:
    return "the mask allows no choice at all";
  case FormOutcome::IllegalChoice:
    return "the policy's own choice is not legal";
  case FormOutcome::BadIndex:
    return "an index is beyond its table";
  }
  return "no outcome of a form";
}

struct FormEvaluator::State {
  explicit State(std::shared_ptr<const forms::Program> made)
      : program(std::move(made)), observation(program->observation / 8 + 1), work(program->work / 8 + 1),
        tests(program->tests + 1), leaves(program->trees + 1), chances(program->choices) {
    memory.spaces = {reinterpret_cast<const unsigned char *>(program->constants.data()),
                     reinterpret_cast<const unsigned char *>(observation.data()),
                     reinterpret_cast<const unsigned char *>(work.data())};
    memory.work = reinterpret_cast<unsigned char *>(work.data());
    memory.tests = tests.data();
    memory.leaves = leaves.data();
    for (const FormFeature &each : program->features)
      std::memcpy(reinterpret_cast<char *>(observation.data()) + each.offset, each.fill.data(), each.fill.size());
  }

  FormOutcome decide(forms::Draw *draw, void *advice) noexcept;

  std::shared_ptr<const forms::Program> program;
  // Of 8 bytes, for their place in memory.
  std::vector<std::uint64_t> observation;
  std::vector<std::uint64_t> work;
  std::vector<unsigned char> tests;
  std::vector<std::uint32_t> leaves;
  std::vector<double> chances;
  forms::Memory memory;
};

FormEvaluator::FormEvaluator(const Form &form) : state_(std::make_unique<State>(form.program_)) {}
FormEvaluator::~FormEvaluator() = default;
FormEvaluator::FormEvaluator(FormEvaluator &&) noexcept = default;
FormEvaluator &FormEvaluator::operator=(FormEvaluator &&) noexcept = default;

char *FormEvaluator::observation() noexcept { return reinterpret_cast<char *>(state_->observation.data()); }

FormOutcome FormEvaluator::evaluate(void *advice) noexcept { return state_->decide(nullptr, advice); }

FormOutcome FormEvaluator::draw(const Exploration &exploration, std::uint64_t number, void *advice,
                                float &log_probability) noexcept {
  forms::Draw draw{&exploration, number, state_->chances.data(), 0};
  const FormOutcome outcome = state_->decide(&draw, advice);
  log_probability = draw.log_probability;
  return outcome;
}

FormOutcome FormEvaluator::State::decide(forms::Draw *draw, void *advice) noexcept {
  memory.is_bad_index = false;
  for (const forms::Instruction &each : program->instructions) {
    each.run(each, memory);
    if (memory.is_bad_index)
      return FormOutcome::BadIndex;
  }
  return forms::choose(*program, memory, draw, advice);
}

const void *FormEvaluator::scores() const noexcept {
  const forms::Operand &result = state_->program->result;
  return state_->memory.spaces[static_cast<std::size_t>(result.space)] + result.offset;
}

} // namespace policybridge

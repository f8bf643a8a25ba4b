// The bytes of a form; docs/forms.md describes them, and serdes/policybridge_forms/codec.py reads the same.
#include "form_reader.h"

#include "utf8.h"

#include <algorithm>
#include <cstring>

namespace policybridge::forms {

namespace {

constexpr char magic[] = "\x89PBF\r\n\x1a\n";
constexpr std::size_t line = 8;
constexpr std::size_t most_memory = std::size_t{1} << 20;
constexpr std::size_t most_features = 1 << 12;
constexpr std::size_t most_instructions = 1 << 14;
constexpr std::size_t most_forests = 1 << 8;
constexpr std::size_t most_name = 1 << 10;

constexpr bool is_known(Function function) noexcept {
  const auto number = static_cast<unsigned>(function);
  return (number >= 1 && number <= 21) || (number >= 32 && number <= 41) || (number >= 48 && number <= 55) ||
         (number >= 64 && number <= 65) || (number >= 80 && number <= 83) || (number >= 96 && number <= 97);
}

/// Bytes that are read from the front. After a failure it gives zeros, and `status` has the first reason.
class Source {
public:
  explicit Source(std::string_view bytes) : bytes_(bytes) {}

  Status status;

  bool fail(std::string why, StatusCode code = StatusCode::InvalidArgument) {
    if (status.ok())
      status = Status(code, "the form " + std::move(why));
    return false;
  }

  bool require(bool holds, const char *why) { return holds || fail(why); }

  /// The next bytes; what is behind them up to a multiple of 8 has to be 0.
  std::string_view take(std::size_t size, const char *what) {
    const std::size_t padded = size + (line - (at_ + size) % line) % line;
    if (!status.ok() || size > bytes_.size() - at_ || padded > bytes_.size() - at_) {
      fail(std::string("ends within its ") + what);
      return {};
    }
    const std::string_view taken = bytes_.substr(at_, size);
    for (const char byte : bytes_.substr(at_ + size, padded - size))
      require(byte == 0, "has padding that is not 0");
    at_ += padded;
    return taken;
  }

  std::string_view take(std::size_t count, std::size_t size, const char *what) {
    return count > most_form_bytes ? take(most_form_bytes + 1, what) : take(count * size, what);
  }

  template <class T> Numbers<T> array(std::size_t count, const char *what) {
    return Numbers<T>(take(count, sizeof(T), what));
  }

  bool is_at_end() const noexcept { return at_ == bytes_.size(); }

private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

/// Numbers of a part of fixed size.
class Fields {
public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  template <class T> std::size_t next() noexcept {
    T number = 0;
    if (at_ + sizeof number <= bytes_.size())
      std::memcpy(&number, bytes_.data() + at_, sizeof number);
    at_ += sizeof number;
    return number;
  }

private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

Kind kind_of(Source &source, std::size_t number) {
  return source.require(number < kinds, "has an element type that there is not") ? static_cast<Kind>(number)
                                                                                  : Kind::Bool;
}

Operand read_operand(Source &source) {
  Fields fields(source.take(8, "operands"));
  Operand made;
  const std::size_t space = fields.next<std::uint8_t>();
  if (source.require(space < 3, "has a space that there is not"))
    made.space = static_cast<Space>(space);
  made.kind = kind_of(source, fields.next<std::uint8_t>());
  source.require(fields.next<std::uint16_t>() == 0, "has an operand with bytes that are not 0");
  made.offset = fields.next<std::uint32_t>();
  return made;
}

Kind read_spec(Source &source, FormFeature &made) {
  Fields fields(source.take(16, "specifications"));
  const Kind kind = kind_of(source, fields.next<std::uint16_t>());
  const std::size_t rank = fields.next<std::uint16_t>();
  const std::size_t length = fields.next<std::uint16_t>();
  const std::size_t filled = fields.next<std::uint16_t>();
  made.offset = fields.next<std::uint32_t>();
  source.require(filled <= 1 && fields.next<std::uint32_t>() == 0, "has a specification with bytes that are not 0");
  if (rank > most_axes || length > most_name)
    source.fail("has a tensor of too many dimensions, or with too long a name", StatusCode::ResourceExhausted);
  if (!source.status.ok())
    return kind;
  made.spec.type = element_type_of(kind);
  made.spec.shape.clear();
  std::size_t count = 1;
  bool is_empty = false;
  for (const std::uint32_t dim : source.array<std::uint32_t>(rank, "specifications").copy()) {
    made.spec.shape.push_back(dim);
    is_empty = is_empty || dim == 0;
    count = std::min<std::uint64_t>(std::uint64_t{count} * (dim ? dim : 1), most_memory + 1);
  }
  made.spec.name = source.take(length, "specifications");
  source.require(!made.spec.name.empty() && is_utf8(made.spec.name), "has a name that is empty or no UTF-8");
  if (count * size_of(kind) > most_memory)
    source.fail("has a tensor that is too large", StatusCode::ResourceExhausted);
  made.has_fill = filled == 1;
  if (made.has_fill && source.status.ok())
    made.fill = source.take(is_empty ? 0 : count * size_of(kind), "defaults");
  return kind;
}

void read_instruction(Source &source, Instruction &made) {
  Fields fields(source.take(8, "instructions"));
  const std::size_t opcode = fields.next<std::uint16_t>();
  made.function = static_cast<Function>(fields.next<std::uint16_t>());
  source.require(opcode >= 1 && opcode <= 10, "has an opcode that there is not");
  source.require(is_known(made.function), "has a function that there is not");
  made.opcode = static_cast<Opcode>(opcode);
  const std::size_t inputs = fields.next<std::uint8_t>();
  const std::size_t numbers = fields.next<std::uint8_t>();
  const std::size_t sizes = fields.next<std::uint16_t>();
  made.output = read_operand(source);
  for (std::size_t place = 0; place < inputs && source.status.ok(); ++place)
    made.inputs.push_back(read_operand(source));
  const auto given = source.array<std::uint32_t>(sizes, "instructions");
  for (std::size_t place = 0; place < given.size(); ++place)
    made.sizes.push_back(given[place]);
  source.require(numbers <= made.numbers.size(), "has an instruction with too many numbers");
  const std::vector<double> row = source.array<double>(numbers, "instructions").copy();
  std::copy_n(row.begin(), std::min(row.size(), made.numbers.size()), made.numbers.begin());
  made.number_count = numbers;
}

void read_forest(Source &source, Forest &made) {
  Fields fields(source.take(32, "forests"));
  made.kind = kind_of(source, fields.next<std::uint32_t>());
  source.require(is_float(made.kind), "has a forest of no float type");
  made.columns = static_cast<std::uint32_t>(fields.next<std::uint32_t>());
  made.targets = static_cast<std::uint32_t>(fields.next<std::uint32_t>());
  const std::size_t aggregate = fields.next<std::uint32_t>();
  source.require(aggregate < 4, "has an aggregate that there is not");
  made.aggregate = static_cast<Aggregate>(aggregate);
  const std::size_t trees = fields.next<std::uint32_t>();
  const std::size_t nodes = fields.next<std::uint32_t>();
  const std::size_t weights = fields.next<std::uint32_t>();
  source.require(fields.next<std::uint32_t>() == 0, "has a forest with bytes that are not 0");
  made.sizes = source.array<std::uint32_t>(trees, "forests");
  made.kinds = source.array<unsigned char>(nodes, "forests");
  made.links = source.array<std::uint32_t>(nodes, "forests");
  const std::size_t real = size_of(made.kind);
  made.threshold_bytes = source.take(nodes, real, "forests");
  made.owners = source.array<std::uint32_t>(weights, "forests");
  made.weight_bytes = source.take(weights, real, "forests");
}

struct Counts {
  std::size_t features;
  std::size_t forests;
  std::size_t instructions;
};

Counts read_header(Source &source, std::string_view bytes, Program &program) {
  Fields fields(source.take(88, "header"));
  if (!source.status.ok())
    return {};
  source.require(bytes.substr(0, 8) == std::string_view(magic, 8), "begins otherwise than the form of a policy");
  static_cast<void>(fields.next<std::uint64_t>());
  source.require(fields.next<std::uint32_t>() == 1, "is of another version; this program reads version 1");
  source.require(fields.next<std::uint32_t>() == bytes.size(), "has another size than it says");
  for (unsigned char &byte : program.digest)
    byte = static_cast<unsigned char>(fields.next<std::uint8_t>());
  program.observation = fields.next<std::uint32_t>();
  program.work = fields.next<std::uint32_t>();
  program.constant_bytes = fields.next<std::uint32_t>();
  Counts counts{};
  counts.features = fields.next<std::uint32_t>();
  counts.forests = fields.next<std::uint32_t>();
  counts.instructions = fields.next<std::uint32_t>();
  const std::size_t scores = fields.next<std::uint32_t>();
  program.choices = fields.next<std::uint32_t>();
  const std::size_t masked = fields.next<std::uint32_t>();
  program.mask = fields.next<std::uint32_t>();
  program.is_masked = masked == 1;
  source.require(scores < 4, "has a kind of scores that there is not");
  program.scores = static_cast<Scores>(scores);
  source.require(masked <= 1 && (masked || !program.mask), "has a mask that is none");
  if (counts.features > most_features || counts.forests > most_forests || counts.instructions > most_instructions ||
      program.observation > most_memory || program.work > most_memory)
    source.fail("exceeds a bound: too many features, forests, instructions or bytes", StatusCode::ResourceExhausted);
  return counts;
}

} // namespace

Status read_program(std::string_view bytes, Program &program) {
  if (bytes.size() > most_form_bytes)
    return resource_exhausted("the form has more than " + std::to_string(most_form_bytes) + " bytes");
  Source source(bytes);
  const Counts counts = read_header(source, bytes, program);
  program.result = read_operand(source);
  FormFeature advice;
  program.advice_kind = read_spec(source, advice);
  source.require(advice.offset == 0 && !advice.has_fill, "has an advice with a place or a default");
  program.advice = advice.spec;
  for (std::size_t place = 0; place < counts.features && source.status.ok(); ++place) {
    const Kind kind = read_spec(source, program.features.emplace_back());
    if (program.is_masked && place == program.mask)
      program.mask_kind = kind;
  }
  for (std::size_t place = 0; place < counts.instructions && source.status.ok(); ++place)
    read_instruction(source, program.instructions.emplace_back());
  for (std::size_t place = 0; place < counts.forests && source.status.ok(); ++place)
    read_forest(source, program.forests.emplace_back());
  const std::string_view constants = source.take(program.constant_bytes, "constants");
  source.require(source.is_at_end(), "has bytes behind its end");
  if (!source.status.ok())
    return source.status;
  program.constants.resize(constants.size() / line + 1);
  std::memcpy(program.constants.data(), constants.data(), constants.size());
  return {};
}

} // namespace policybridge::forms

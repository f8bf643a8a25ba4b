// Everything that the library and the launcher read without a connection: JSON, the lines of the protocol, tensors, and
// the stream of a compiler. The first byte of an input chooses.
#include "defaults.h"
#include "features.h"
#include "fuzzing.h"
#include "growth.h"
#include "interactive_reader.h"
#include "json.h"
#include "json_writer.h"
#include "policybridge/tensor.h"
#include "protocol.h"
#include "task.h"
#include "utf8.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

namespace policybridge {

namespace {

void write(JsonWriter &json, const json::Value &value) {
  const bool object = value.kind == json::Value::Kind::Object;
  object ? json.begin_object() : json.begin_array();
  for (const json::Member &member : value.members) {
    if (object)
      json.key(member.name);
    if (member.value.kind == json::Value::Kind::Object || member.value.kind == json::Value::Kind::Array)
      write(json, member.value);
    else
      json.string(member.value.text);
  }
  object ? json.end_object() : json.end_array();
}

bool alike(const json::Value &left, const json::Value &right) {
  return left.text == right.text &&
         std::equal(left.members.begin(), left.members.end(), right.members.begin(), right.members.end(),
                    [](const json::Member &one, const json::Member &other) {
                      return one.name == other.name && alike(one.value, other.value);
                    });
}

void read_json(std::string_view data) {
  const Result<json::Value> value = json::parse(data);
  if (!value.ok())
    return;
  promise(is_utf8(value->text), "a string of JSON is UTF-8");
  static_cast<void>(value->as_integer<std::int64_t>());
  static_cast<void>(value->as_integer<std::uint64_t>());
  if (value->kind != json::Value::Kind::Object && value->kind != json::Value::Kind::Array)
    return;
  JsonWriter json;
  write(json, *value);
  const Result<json::Value> again = json::parse(json.take());
  promise(again.ok() && alike(*value, *again), "a value from JSON is written and read again");
}

void read_lines(std::string_view line) {
  static_cast<void>(protocol::parse_recorded(line));
  promise(!protocol::parse_failure(line).ok(), "a failure is never Ok");
  const Result<SessionInfo> opened = protocol::parse_opened(line);
  promise(!opened.ok() || !(opened->id.empty() || opened->policy.name.empty()), "a session has an id and a policy");
  const Result<std::string> context = protocol::parse_context(line);
  if (context.ok())
    promise(*protocol::parse_context(protocol::context_line(*context)) == *context, "a context is read again");
  const Result<Signature> signature = protocol::parse_header(line);
  if (!signature.ok())
    return;
  const Result<Signature> again = protocol::parse_header(protocol::header_line(*signature));
  promise(again.ok() && again->features.size() == signature->features.size(), "a header is read again");
  promise(again->advice.to_string() == signature->advice.to_string(), "the advice stays the same");
}

void read_tensor(std::string_view data) {
  const TensorSpec specs[] = {
      TensorSpec::of<std::int64_t>("x", {2}),
      TensorSpec::of<float>("f", {-1, 2}),
      TensorSpec::of<bool>("b", {-1, 3, -1}),
      TensorSpec{"s", ElementType::String, {-1}},
      TensorSpec{"t", ElementType::Bytes, {2}},
      TensorSpec::of<double>("d", {}),
      TensorSpec::of<std::int8_t>("n", {0, -1}),
  };
  Tensor tensor(specs[take_byte(data) % std::size(specs)]);
  const std::string_view before = data;
  if (!read_session_form(data, tensor).ok())
    return;
  std::vector<char> written;
  promise(append_session_form(tensor, written).ok(), "a tensor that was read is written");
  const std::string_view used = before.substr(0, before.size() - data.size());
  promise(std::string_view(written.data(), written.size()) == used, "a tensor is written as it was read");
}

/// The launcher's handling of a compiler's messages, without a compiler and a server.
class Host {
public:
  Host(unsigned char task, unsigned char source, unsigned char advice)
      : task_(task_named(task % 3 == 0 ? "inline" : task % 3 == 1 ? "evict" : "priority")),
        defaults_(source % 3 == 0   ? Defaults::Source::Sent
                  : source % 3 == 1 ? Defaults::Source::Computed
                                    : Defaults::Source::Unknown),
        advice_(advice) {}

  /// Take bytes; tell whether the stream may go on. `events` has the events so far.
  bool feed(std::string_view data) {
    while (!data.empty()) {
      std::size_t room = 0;
      char *to = reader_.space(room);
      const std::size_t size = std::min(room, data.size());
      promise(size > 0, "the reader has room");
      std::memcpy(to, data.data(), size);
      reader_.add(size);
      data.remove_prefix(size);
      if (!read())
        return false;
    }
    return true;
  }

  std::string events;

private:
  bool read() {
    while (true) {
      Result<std::optional<Message>> message = reader_.next(signature_ ? std::optional(size_) : std::nullopt);
      if (!message.ok())
        return told(message.status());
      if (!*message)
        return true;
      if (Status status = take(**message); !status.ok())
        return told(status);
    }
  }

  bool told(const Status &status) {
    events += 'E';
    events += status.message();
    return false;
  }

  Status take(const Message &message) {
    events += message.kind == Message::Kind::Header ? 'H' : message.kind == Message::Kind::Context ? 'C' : 'O';
    events.append(message.line).append(message.payload);
    if (message.kind == Message::Kind::Context)
      return protocol::parse_context(message.line).status();
    return message.kind == Message::Kind::Header ? begin(message.line) : answer(message.payload);
  }

  Status begin(std::string_view header) {
    Result<Signature> signature = protocol::parse_header(header);
    if (!signature.ok())
      return signature.status();
    if (Status status = check_llvm_signature(*signature); !status.ok())
      return status;
    size_ = static_cast<std::size_t>(signature->observation_size());
    // A launcher has room for 64 MiB; here such an advice for each observation would only be slow.
    if (std::max<std::uint64_t>(size_, signature->advice.byte_size()) > 1 << 16)
      return resource_exhausted("more than this fuzzer takes");
    signature_ = *std::move(signature);
    growth_.begin(*signature_);
    return defaults_.begin(*signature_);
  }

  Status answer(std::string_view payload) {
    promise(payload.size() == size_, "an observation has the size that was announced");
    std::vector<char> advice(static_cast<std::size_t>(signature_->advice.byte_size()), static_cast<char>(advice_));
    static_cast<void>(defaults_.computed(payload));
    if (const Result<std::string_view> own = defaults_.decision(payload); own.ok())
      promise(own->size() == advice.size(), "LLVM's own decision is as long as an advice");
    if (Status status = task_->make_legal(*signature_, payload, advice); !status.ok())
      return status;
    promise(advice.size() == signature_->advice.byte_size(), "an advice keeps its size");
    growth_.count(payload);
    static_cast<void>(growth_.is_reached());
    return {};
  }

  const Task *task_;
  Defaults defaults_;
  unsigned char advice_;
  Growth growth_{1};
  InteractiveReader reader_;
  std::optional<Signature> signature_;
  std::size_t size_ = 0;
};

void read_stream(std::string_view data) {
  const unsigned char task = take_byte(data);
  const unsigned char source = take_byte(data);
  const unsigned char advice = take_byte(data);
  Host first(task, source, advice);
  Host second(task, source, advice);
  std::string whole;
  while (!data.empty())
    whole.append(take_piece(data));
  std::string_view rest = whole;
  first.feed(whole);
  while (!rest.empty()) {
    if (!second.feed(rest.substr(0, 1)))
      break;
    rest.remove_prefix(1);
  }
  promise(first.events == second.events, "the messages do not depend on how the stream is cut");
}

} // namespace

} // namespace policybridge

extern "C" int LLVMFuzzerTestOneInput(const unsigned char *bytes, std::size_t size) {
  using namespace policybridge;
  std::string_view data(reinterpret_cast<const char *>(bytes), size);
  switch (take_byte(data) % 4) {
  case 0:
    read_json(data);
    break;
  case 1:
    read_lines(data);
    break;
  case 2:
    read_tensor(data);
    break;
  default:
    read_stream(data);
  }
  return 0;
}

// A compiler that asks through ML-Compiler-Bridge's pipes, in the manner of its PipeModelRunner: opens BASE.in, then
// BASE.out; sends each observation behind its length; reads as many bytes as the answer announces, whatever happens.
//
//   pipes_compiler BASE bytes|json
//
// Each line of standard input is a decision, and its answer is printed: `vfloat:embedding=1.5,2 int:count=3 -> int`.
// `half` sends half a message and ends; `quit` ends without a question.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

std::vector<std::string> split(const std::string &Text, char Separator) {
  std::vector<std::string> Parts;
  std::stringstream Stream(Text);
  for (std::string Part; std::getline(Stream, Part, Separator);)
    Parts.push_back(Part);
  return Parts;
}

struct Feature {
  std::string Name;
  bool Vector = false;
  std::string Type; // of an element: int long float double bool char string
  std::vector<std::string> Elements;
};

template <typename T> std::string raw(T Value) { return std::string(reinterpret_cast<const char *>(&Value), sizeof Value); }

std::string raw_element(const std::string &Type, const std::string &Text) {
  if (Type == "int")
    return raw(static_cast<std::int32_t>(std::stol(Text)));
  if (Type == "char") // becomes an int on its way into a feature
    return raw(static_cast<std::int32_t>(Text.at(0)));
  if (Type == "long")
    return raw(static_cast<std::int64_t>(std::stoll(Text)));
  if (Type == "float")
    return raw(std::stof(Text));
  if (Type == "double")
    return raw(std::stod(Text));
  if (Type == "bool")
    return raw(static_cast<std::uint8_t>(Text == "true"));
  return Text;
}

std::string json_element(const std::string &Type, const std::string &Text) {
  char Buffer[64];
  if (Type == "char")
    return std::to_string(static_cast<int>(Text.at(0)));
  if (Type == "string")
    return "\"" + Text + "\"";
  if (Type != "float" && Type != "double")
    return Text;
  std::snprintf(Buffer, sizeof Buffer, "%.17g", Type == "float" ? static_cast<double>(std::stof(Text)) : std::stod(Text));
  return Buffer;
}

std::string bytes_message(const std::vector<Feature> &Features) {
  const std::map<std::string, std::string> Names = {{"int", "int32_t"}, {"char", "int32_t"},    {"long", "int64_t"},
                                                    {"float", "float"}, {"double", "double"},   {"bool", "uint8_t"},
                                                    {"string", "uint8_t"}};
  std::string Header, Payload;
  for (const Feature &F : Features) {
    std::string Data;
    for (const std::string &Element : F.Elements)
      Data += raw_element(F.Type, Element);
    const std::size_t Size = F.Type == "string" ? Data.size() : F.Elements.size();
    Header += (Header.empty() ? "" : ",") + ("{\"name\":\"" + F.Name) + "\",\"type\":\"" + Names.at(F.Type) +
              "\",\"port\":6020,\"shape\":[" + std::to_string(Size) + "]}";
    Payload += Data;
  }
  return "{\"features\":[" + Header + "]}\n" + Payload + "\n";
}

std::string json_message(const std::vector<Feature> &Features) {
  std::map<std::string, std::string> Sorted;
  for (const Feature &F : Features) {
    std::string Value;
    for (const std::string &Element : F.Elements)
      Value += (Value.empty() ? "" : ",") + json_element(F.Type, Element);
    Sorted[F.Name] = F.Vector ? "[" + Value + "]" : Value;
  }
  std::string Message;
  for (const auto &[Name, Value] : Sorted)
    Message += (Message.empty() ? "" : ",") + ("\"" + Name + "\":") + Value;
  return "{" + Message + "}";
}

// The elements' bytes, typed by the first of them: C's int if it is integral, whatever is asked for.
std::string json_answer(const std::string &Message) {
  const std::string Key = "{\"out\": ";
  if (Message.compare(0, Key.size(), Key) != 0 || Message.back() != '}')
    std::exit(1); // what its JSON parser makes of anything malformed
  std::string Value = Message.substr(Key.size(), Message.size() - Key.size() - 1), Data;
  if (Value.front() == '[')
    Value = Value.substr(1, Value.size() - 2);
  if (Value.front() == '"')
    return Value.substr(1, Value.size() - 2);
  if (Value == "true" || Value == "false")
    return raw(Value == "true");
  const std::vector<std::string> Elements = split(Value, ',');
  double Whole = 0;
  const double First = std::strtod(Elements.at(0).c_str(), nullptr);
  const bool Integral = std::isfinite(First) && std::modf(First, &Whole) == 0.0 && std::fabs(First) <= 0x1p63;
  for (const std::string &Element : Elements) {
    const double Number = std::strtod(Element.c_str(), nullptr);
    Data += Integral ? raw(static_cast<std::int32_t>(Number)) : raw(static_cast<float>(Number));
  }
  return Data;
}

template <typename T> void print(const std::string &Data, bool Vector) {
  const std::size_t Count = Vector ? Data.size() / sizeof(T) : 1;
  for (std::size_t Index = 0; Index != Count; ++Index) {
    T Value;
    std::memcpy(&Value, Data.data() + Index * sizeof(T), sizeof(T));
    std::cout << (Index ? "," : "") << +Value;
  }
  std::cout << std::endl;
}

void print(const std::string &Type, const std::string &Data, bool Vector) {
  std::cout.precision(17);
  if (Type == "int")
    print<std::int32_t>(Data, Vector);
  else if (Type == "long")
    print<std::int64_t>(Data, Vector);
  else if (Type == "float")
    print<float>(Data, Vector);
  else if (Type == "double")
    print<double>(Data, Vector);
  else if (Type == "string")
    std::cout << Data << std::endl;
  else
    print<signed char>(Data, Vector);
}

class Pipes {
public:
  explicit Pipes(const std::string &Base) : In_(open((Base + ".in").c_str(), O_RDONLY)) {
    Out_ = open((Base + ".out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (In_ < 0 || Out_ < 0)
      std::exit(2);
  }
  Pipes(const Pipes &) = delete;
  Pipes &operator=(const Pipes &) = delete;
  ~Pipes() {
    close(In_);
    close(Out_);
  }

  void send(const std::string &Data) const {
    for (std::size_t Sent = 0; Sent != Data.size();) {
      const ssize_t Count = write(Out_, Data.data() + Sent, Data.size() - Sent);
      if (Count < 0)
        std::exit(3);
      Sent += static_cast<std::size_t>(Count);
    }
  }

  std::string receive() const {
    const std::string Length = read_all(8);
    std::uint64_t Size = 0;
    std::memcpy(&Size, Length.data(), sizeof Size);
    return read_all(Size);
  }

private:
  std::string read_all(std::size_t Size) const {
    std::string Data(Size, '\0');
    // The end of the file is no reason to stop there either.
    for (std::size_t Got = 0; Got < Size;) {
      const ssize_t Count = read(In_, Data.data() + Got, Size - Got);
      if (Count < 0)
        std::exit(4);
      Got += static_cast<std::size_t>(Count);
    }
    return Data;
  }

  int In_;
  int Out_ = -1;
};

} // namespace

int main(int, char **Arguments) {
  const Pipes Server(Arguments[1]);
  const bool Json = std::string(Arguments[2]) == "json";
  for (std::string Line; std::getline(std::cin, Line) && Line != "quit";) {
    std::vector<Feature> Features;
    std::string Asked;
    std::stringstream Words(Line);
    for (std::string Word; Words >> Word;) {
      if (Word == "->") {
        Words >> Asked;
        break;
      }
      if (Word == "half") {
        Server.send(raw(std::uint64_t{1000}) + "{\"features\":");
        return 0;
      }
      const std::size_t Colon = Word.find(':'), Equals = Word.find('=');
      const std::string Type = Word.substr(0, Colon);
      Feature F;
      F.Name = Word.substr(Colon + 1, Equals - Colon - 1);
      F.Vector = Type.front() == 'v';
      F.Type = F.Vector ? Type.substr(1) : Type;
      F.Elements = split(Word.substr(Equals + 1), ',');
      if (F.Type == "string" && F.Elements.empty())
        F.Elements.emplace_back();
      Features.push_back(F);
    }
    const std::string Message = Json ? json_message(Features) : bytes_message(Features);
    Server.send(raw(static_cast<std::uint64_t>(Message.size())) + Message);
    const std::string Answer = Server.receive();
    const bool Vector = Asked.front() == 'v';
    print(Vector ? Asked.substr(1) : Asked, Json ? json_answer(Answer) : Answer, Vector);
  }
  return 0;
}

/// The part of ONNX Runtime's C API that is used here, declared without its header.
///
/// `OrtGetApiBase` is the library's one symbol. It leads to a table of functions that only grows: the entries of
/// version 1 keep their places in every later release, and only those are declared here.
#ifndef POLICYBRIDGE_ONNX_ORT_API_H
#define POLICYBRIDGE_ONNX_ORT_API_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace policybridge::ort {

inline constexpr std::uint32_t api_version = 1;

struct Env;
struct Error;
struct MemoryInfo;
struct Session;
struct SessionOptions;
struct Value;
struct RunOptions;
struct TypeInfo;
struct TensorInfo;
struct Allocator;

/// The values of `ONNXTensorElementDataType` that a tensor spec can name.
enum class Element : int {
  Float = 1,
  UInt8 = 2,
  Int8 = 3,
  UInt16 = 4,
  Int16 = 5,
  Int32 = 6,
  Int64 = 7,
  String = 8,
  Bool = 9,
  Double = 11,
  UInt32 = 12,
  UInt64 = 13,
};

/// The values of `OrtLoggingLevel`, `OrtAllocatorType` and `OrtMemType` that are used.
enum class Logging : int { Fatal = 4 };
enum class AllocatorKind : int { Device = 0 };
enum class MemoryKind : int { Default = 0 };

/// One entry of the table: its place and its type.
template <std::size_t Index, class Signature> struct Slot {
  static constexpr std::size_t index = Index;
  using Function = Signature;
};

using GetErrorMessage = Slot<2, const char *(const Error *)>;
using CreateEnv = Slot<3, Error *(Logging, const char *log_id, Env **)>;
using CreateSession = Slot<7, Error *(const Env *, const char *path, const SessionOptions *, Session **)>;
using Run = Slot<9, Error *(Session *, const RunOptions *, const char *const *input_names, const Value *const *inputs,
                            std::size_t input_count, const char *const *output_names, std::size_t output_count,
                            Value **outputs)>;
using CreateSessionOptions = Slot<10, Error *(SessionOptions **)>;
using SetSessionLogSeverityLevel = Slot<22, Error *(SessionOptions *, Logging)>;
using SetIntraOpNumThreads = Slot<24, Error *(SessionOptions *, int)>;
using SetInterOpNumThreads = Slot<25, Error *(SessionOptions *, int)>;
using SessionGetInputCount = Slot<30, Error *(const Session *, std::size_t *)>;
using SessionGetOutputCount = Slot<31, Error *(const Session *, std::size_t *)>;
using SessionGetInputTypeInfo = Slot<33, Error *(const Session *, std::size_t, TypeInfo **)>;
using SessionGetOutputTypeInfo = Slot<34, Error *(const Session *, std::size_t, TypeInfo **)>;
using SessionGetInputName = Slot<36, Error *(const Session *, std::size_t, Allocator *, char **)>;
using SessionGetOutputName = Slot<37, Error *(const Session *, std::size_t, Allocator *, char **)>;
using CreateTensor = Slot<48, Error *(Allocator *, const std::int64_t *shape, std::size_t rank, Element, Value **)>;
using CreateTensorWithData = Slot<49, Error *(const MemoryInfo *, void *data, std::size_t bytes,
                                              const std::int64_t *shape, std::size_t rank, Element, Value **)>;
using GetTensorMutableData = Slot<51, Error *(Value *, void **)>;
using FillStringTensor = Slot<52, Error *(Value *, const char *const *texts, std::size_t count)>;
using GetStringTensorDataLength = Slot<53, Error *(const Value *, std::size_t *)>;
using GetStringTensorContent =
    Slot<54, Error *(const Value *, void *texts, std::size_t bytes, std::size_t *starts, std::size_t count)>;
using CastTypeInfoToTensorInfo = Slot<55, Error *(const TypeInfo *, const TensorInfo **)>;
using GetTensorElementType = Slot<60, Error *(const TensorInfo *, Element *)>;
using GetDimensionsCount = Slot<61, Error *(const TensorInfo *, std::size_t *)>;
using GetDimensions = Slot<62, Error *(const TensorInfo *, std::int64_t *, std::size_t)>;
using GetSymbolicDimensions = Slot<63, Error *(const TensorInfo *, const char **, std::size_t)>;
using GetTensorTypeAndShape = Slot<65, Error *(const Value *, TensorInfo **)>;
using CreateCpuMemoryInfo = Slot<69, Error *(AllocatorKind, MemoryKind, MemoryInfo **)>;
using AllocatorFree = Slot<76, Error *(Allocator *, void *)>;
using GetAllocatorWithDefaultOptions = Slot<78, Error *(Allocator **)>;
using ReleaseEnv = Slot<92, void(Env *)>;
using ReleaseError = Slot<93, void(Error *)>;
using ReleaseMemoryInfo = Slot<94, void(MemoryInfo *)>;
using ReleaseSession = Slot<95, void(Session *)>;
using ReleaseValue = Slot<96, void(Value *)>;
using ReleaseTypeInfo = Slot<98, void(TypeInfo *)>;
using ReleaseTensorInfo = Slot<99, void(TensorInfo *)>;
using ReleaseSessionOptions = Slot<100, void(SessionOptions *)>;

/// The table, `OrtApi`.
class Api {
public:
  explicit Api(const void *table) : table_(static_cast<const unsigned char *>(table)) {}

  /// Call one entry: `api.call<CreateEnv>(Logging::Fatal, "policybridge", &env)`.
  template <class Entry, class... Arguments> auto call(Arguments... arguments) const {
    typename Entry::Function *function = nullptr;
    std::memcpy(&function, table_ + Entry::index * sizeof function, sizeof function);
    return function(arguments...);
  }

private:
  const unsigned char *table_;
};

/// `OrtApiBase`, which never changes.
struct ApiBase {
  const void *(*get_api)(std::uint32_t version);
  const char *(*get_version_string)();
};

/// Releases an object by an entry of the table.
template <class Entry> struct Release {
  Api api{nullptr};
  template <class T> void operator()(T *object) const { api.call<Entry>(object); }
};

/// An owned object. The library outlives it, because it is never closed.
template <class T, class Entry> using Owned = std::unique_ptr<T, Release<Entry>>;

using OwnedEnv = Owned<Env, ReleaseEnv>;
using OwnedError = Owned<Error, ReleaseError>;
using OwnedMemoryInfo = Owned<MemoryInfo, ReleaseMemoryInfo>;
using OwnedSession = Owned<Session, ReleaseSession>;
using OwnedSessionOptions = Owned<SessionOptions, ReleaseSessionOptions>;
using OwnedTypeInfo = Owned<TypeInfo, ReleaseTypeInfo>;
using OwnedTensorInfo = Owned<TensorInfo, ReleaseTensorInfo>;
using OwnedValue = Owned<Value, ReleaseValue>;

} // namespace policybridge::ort

#endif

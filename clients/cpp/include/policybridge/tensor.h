#ifndef POLICYBRIDGE_TENSOR_H
#define POLICYBRIDGE_TENSOR_H

#include "policybridge/span.h"
#include "policybridge/status.h"
#include "policybridge/tensor_spec.h"

#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

/// The value of one tensor, as its spec allows. At first all elements are zero, varying dimensions are 0, texts are
/// empty.
///
/// Elements lie in row-major order. A fixed tensor's elements stay at their address for its whole life; those of a
/// varying one may move when it is set. A tensor cannot be copied, because others point into it.
class Tensor {
public:
  /// `spec` must have passed `TensorSpec::check`. A fixed tensor may be given its memory, which is zeroed:
  /// `spec.byte_size()` bytes, aligned for the element type. Without, it allocates its own.
  explicit Tensor(TensorSpec spec, void *memory = nullptr);
  Tensor(Tensor &&) noexcept = default;
  Tensor &operator=(Tensor &&) noexcept = default;
  Tensor(const Tensor &) = delete;
  Tensor &operator=(const Tensor &) = delete;
  ~Tensor() = default;

  const TensorSpec &spec() const noexcept { return spec_; }
  /// The shape of the value that is held: the spec's, each −1 filled in.
  Span<const std::int64_t> shape() const noexcept { return shape_; }
  /// Number of elements held.
  std::size_t count() const noexcept { return count_; }

  /// The elements; null where `T` is not the element type.
  template <class T> T *data() noexcept {
    return element_type_of<T>() == spec_.type ? static_cast<T *>(raw()) : nullptr;
  }
  template <class T> const T *data() const noexcept { return const_cast<Tensor *>(this)->data<T>(); }

  /// The elements as a view; empty where `T` is not the element type.
  template <class T> Span<const T> values() const noexcept {
    const T *elements = data<T>();
    return Span<const T>(elements, elements ? count_ : 0);
  }

  /// The elements of any type; null for texts.
  void *raw() noexcept { return is_text(spec_.type) ? nullptr : data_; }
  const void *raw() const noexcept { return const_cast<Tensor *>(this)->raw(); }

  /// The element at `index` of a tensor of bytes or strings, valid until the tensor is set; empty for any other.
  std::string_view text(std::size_t index) const noexcept;

  /// Set all elements, copied from `values`. `shape` may be left out where the spec leaves at most one size open.
  /// InvalidArgument: the type, the shape or the number of elements does not fit; the tensor stays as it was.
  template <class T> Status set(Span<const T> values, Span<const std::int64_t> shape = {}) {
    return set_raw(element_type_of<T>(), values.data(), values.size(), shape);
  }

  /// As `set`, with the element type given at run time. `values` holds `count` elements of it.
  Status set_raw(ElementType type, const void *values, std::size_t count, Span<const std::int64_t> shape = {});

  /// As `set`, for bytes and strings. InvalidArgument also where a string is no UTF-8.
  Status set_texts(Span<const std::string_view> texts, Span<const std::int64_t> shape = {});

  /// Give a numeric tensor this shape; the elements keep their bytes as far as there is room, others are zero.
  /// InvalidArgument: it does not fit the spec.
  Status resize(Span<const std::int64_t> shape);

private:
  Status fit(std::size_t count, Span<const std::int64_t> shape);
  void allocate(std::size_t count);

  TensorSpec spec_;
  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> fitted_; // the shape being checked; a member so that setting allocates nothing
  std::size_t count_ = 0;
  std::vector<std::uint64_t> owned_; // of words, to be aligned for every element type
  void *data_ = nullptr;
  std::vector<std::string> texts_;
};

/// Append `tensor` in the session form of the SerDes `bitstream`: for each −1 its size as uint64, then the elements;
/// of texts all lengths as uint32, then their bytes. Little endian, as everything on the wire.
/// ResourceExhausted: a text is longer than its length can say.
Status append_session_form(const Tensor &tensor, std::vector<char> &to);

/// Read `tensor` from the front of `data` and drop those bytes from it.
/// InvalidArgument: the bytes are not a value of the spec. ResourceExhausted: they announce more bytes than there are.
Status read_session_form(std::string_view &data, Tensor &tensor);

} // namespace policybridge

#endif

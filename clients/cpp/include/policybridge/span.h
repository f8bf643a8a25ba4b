#ifndef POLICYBRIDGE_SPAN_H
#define POLICYBRIDGE_SPAN_H

#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>

namespace policybridge {

/// A view of contiguous elements that it does not own: the part of C++20's std::span that is needed here.
template <class T> class Span {
public:
  constexpr Span() noexcept = default;
  constexpr Span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}

  /// Of anything with contiguous elements: a vector, an array, a string.
  template <class Container,
            class = std::enable_if_t<std::is_convertible_v<decltype(std::declval<Container &>().data()), T *>>>
  constexpr Span(Container &&container) noexcept : data_(container.data()), size_(container.size()) {}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
#endif
  /// Of a braced list, which lives as long as the call that it is an argument of.
  template <class U = T, class = std::enable_if_t<std::is_const_v<U>>>
  constexpr Span(std::initializer_list<std::remove_const_t<U>> list) noexcept
      : data_(list.begin()), size_(list.size()) {}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

  constexpr T *data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T *begin() const noexcept { return data_; }
  constexpr T *end() const noexcept { return data_ + size_; }
  constexpr T &operator[](std::size_t index) const noexcept { return data_[index]; }

private:
  T *data_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace policybridge

#endif

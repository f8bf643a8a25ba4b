#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

/// The functions of libm that a form needs, in the steps of serdes/policybridge_forms/arithmetic.py, so that a result
/// has the same bits everywhere. This file must be compiled without fused operations (-ffp-contract=off).
namespace policybridge::forms {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double quiet_nan = std::numeric_limits<double>::quiet_NaN();
inline constexpr std::int64_t two_52 = INT64_C(4503599627370496);

/// e^x = 2^n e^r, |r| <= ln(2)/2; the series of e^r to its 13th power.
inline double exp(double x) noexcept {
  if (!(x == x))
    return x;
  if (x > 709.782712893384)
    return infinity;
  if (x < -745.1332191019412)
    return 0.0;
  auto n = static_cast<std::int64_t>(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
  const double r =
      (x - static_cast<double>(n) * 0.693147180369123816490) - static_cast<double>(n) * 1.90821492927058770002e-10;
  double s = 1.0 / 6227020800.0;
  s = s * r + 1.0 / 479001600.0;
  s = s * r + 1.0 / 39916800.0;
  s = s * r + 1.0 / 3628800.0;
  s = s * r + 1.0 / 362880.0;
  s = s * r + 1.0 / 40320.0;
  s = s * r + 1.0 / 5040.0;
  s = s * r + 1.0 / 720.0;
  s = s * r + 1.0 / 120.0;
  s = s * r + 1.0 / 24.0;
  s = s * r + 1.0 / 6.0;
  s = s * r + 0.5;
  s = s * r * r + r + 1.0;
  if (n < -1000) {
    s *= 9.332636185032189e-302; // 2^-1000
    n += 1000;
  }
  if (n > 1000) {
    s *= 1.0715086071862673e+301; // 2^1000
    n -= 1000;
  }
  const std::int64_t bits = (n + 1023) * two_52;
  double scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return s * scale;
}

/// x = 2^n m, m between the roots of 1/2 and 2; log(m) = 2 artanh((m - 1) / (m + 1)).
inline double log(double x) noexcept {
  if (!(x == x) || x < 0)
    return quiet_nan;
  if (x == 0)
    return -infinity;
  if (x == infinity)
    return x;
  std::int64_t n = 0;
  if (x < 2.2250738585072014e-308) {
    x *= 18014398509481984.0; // 2^54
    n = -54;
  }
  std::int64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  n += bits / two_52 - 1023;
  bits = bits % two_52 + INT64_C(1023) * two_52;
  double m;
  std::memcpy(&m, &bits, sizeof m);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++n;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double t = s * s;
  double sum = 0.0;
  for (int k = 25; k > 1; k -= 2)
    sum = (sum + 1.0 / k) * t;
  const auto whole = static_cast<double>(n);
  return whole * 0.693147180369123816490 + (whole * 1.90821492927058770002e-10 + 2.0 * s * (1.0 + sum));
}

/// Newton's method from a guess that halves the exponent.
inline double sqrt(double x) noexcept {
  if (!(x == x) || x < 0)
    return quiet_nan;
  if (x == 0 || x == infinity)
    return x;
  double scale = 1.0;
  if (x < 2.2250738585072014e-308) {
    x *= 18014398509481984.0;       // 2^54
    scale = 7.450580596923828e-09; // 2^-27
  }
  std::int64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = bits / 2 + INT64_C(2301339409586323456);
  double y;
  std::memcpy(&y, &bits, sizeof y);
  for (int k = 0; k < 6; ++k)
    y = 0.5 * (y + x / y);
  return y * scale;
}

inline double tanh(double x) noexcept {
  if (x > 20.0)
    return 1.0;
  if (x < -20.0)
    return -1.0;
  if (x > -1e-3 && x < 1e-3)
    return x - x * x * x / 3.0;
  const double e = exp(2.0 * x);
  return (e - 1.0) / (e + 1.0);
}

inline double sigmoid(double x) noexcept {
  if (x >= 0)
    return 1.0 / (1.0 + exp(-x));
  const double e = exp(x);
  return e / (1.0 + e);
}

/// 2 / sqrt(pi) e^(-x^2) sum of 2^k x^(2k+1) / (1 3 5 ... (2k+1)); Abramowitz and Stegun 7.1.6.
inline double erf(double x) noexcept {
  if (x > 6.0)
    return 1.0;
  if (x < -6.0)
    return -1.0;
  double term = x;
  double sum = x;
  for (int k = 1; k < 200; ++k) {
    term *= 2.0 * x * x / (2.0 * k + 1.0);
    sum += term;
    if (x > 0 ? term < 1e-18 * sum : term >= 1e-18 * sum)
      break;
  }
  return 1.1283791670955126 * exp(-x * x) * sum;
}

inline double floor(double x) noexcept {
  if (!(x > -4503599627370496.0 && x < 4503599627370496.0) || x == 0)
    return x;
  const auto whole = static_cast<double>(static_cast<std::int64_t>(x));
  return whole > x ? whole - 1.0 : whole;
}

inline double ceil(double x) noexcept { return -floor(-x); }

/// To the nearest; half way to the even one.
inline double round_even(double x) noexcept {
  const double down = floor(x);
  const double part = x - down;
  return part > 0.5 || (part == 0.5 && floor(down / 2.0) * 2.0 != down) ? down + 1.0 : down;
}

inline double power(double x, double y) noexcept {
  const bool whole = floor(y) == y;
  if (y == 0 || x == 1 || (x == -1 && y - y != 0 && y == y))
    return 1.0;
  if (!(x == x && y == y))
    return x + y;
  if (y == 1)
    return x;
  if (y == 2)
    return x * x;
  if (y == 3)
    return x * x * x;
  const double size = x == 0 ? (y > 0 ? 0.0 : infinity) : exp(y * log(x < 0 ? -x : x));
  if (x > 0 || (x == 0 && 1.0 / x > 0))
    return size;
  if (!whole && x - x != 0)
    return size;
  if (!whole && x != 0)
    return quiet_nan;
  return floor(y / 2.0) * 2.0 == y || !whole ? size : -size;
}

/// As x86-64 converts, out of range and for NaN too.
inline std::int64_t to_int64(double x) noexcept {
  return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? static_cast<std::int64_t>(x)
                                                                   : std::numeric_limits<std::int64_t>::min();
}

inline std::uint64_t to_uint64(double x) noexcept {
  if (x >= 9223372036854775808.0)
    return static_cast<std::uint64_t>(to_int64(x - 9223372036854775808.0)) + (UINT64_C(1) << 63);
  return static_cast<std::uint64_t>(to_int64(x));
}

inline std::int32_t to_int32(double x) noexcept {
  return x > -2147483649.0 && x < 2147483648.0 ? static_cast<std::int32_t>(x)
                                                : std::numeric_limits<std::int32_t>::min();
}

} // namespace policybridge::forms

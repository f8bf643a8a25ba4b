"""The functions of libm that a form needs, in numpy: the same steps in double as in C, so the same bits.

Rounded to a float, a result is the exact value's float in all but few cases. docs/forms.md has the steps.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]

_LN2_HIGH: Final = 0.693147180369123816490
_LN2_LOW: Final = 1.90821492927058770002e-10
_SERIES: Final = (*(479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0),)
_TWO_52: Final = 4503599627370496
_TERMS: Final = 200


def exp(x: Reals) -> Reals:
    """By e^x = 2^n e^r, |r| <= ln(2)/2; the series of e^r to its 13th power."""
    inside = np.where((x <= 709.782712893384) & (x >= -745.1332191019412), x, 0.0)
    n = (inside * 1.4426950408889634 + np.where(inside < 0, -0.5, 0.5)).astype(np.int64)
    r = (inside - n * _LN2_HIGH) - n * _LN2_LOW
    s = np.full_like(r, 1.0 / 6227020800.0)
    for factorial in _SERIES:
        s = s * r + 1.0 / factorial
    s = s * r + 0.5
    s = s * r * r + r + 1.0
    low, high = n < -1000, n > 1000
    s = np.where(low, s * 9.332636185032189e-302, np.where(high, s * 1.0715086071862673e301, s))
    n = np.where(low, n + 1000, np.where(high, n - 1000, n))
    made = s * ((n + 1023) * _TWO_52).view(np.float64)
    made = np.where(x > 709.782712893384, np.inf, np.where(x < -745.1332191019412, 0.0, made))
    return np.where(np.isnan(x), x, made)


def log(x: Reals) -> Reals:
    """By x = 2^n m, m between the roots of 1/2 and 2, and the series of artanh((m - 1) / (m + 1))."""
    fine = (x > 0) & (x < np.inf)
    scaled = np.where(fine, x, 1.0)
    small = scaled < 2.2250738585072014e-308
    scaled = np.where(small, scaled * 18014398509481984.0, scaled)
    bits = np.ascontiguousarray(scaled).view(np.int64)
    n = np.where(small, -54, 0) + bits // _TWO_52 - 1023
    m = (bits % _TWO_52 + 1023 * _TWO_52).view(np.float64)
    above = m > 1.4142135623730951
    m, n = np.where(above, m * 0.5, m), np.where(above, n + 1, n)
    s = (m - 1.0) / (m + 1.0)
    t = s * s
    total = np.zeros_like(s)
    for k in range(25, 1, -2):
        total = (total + 1.0 / k) * t
    made = n * _LN2_HIGH + (n * _LN2_LOW + 2.0 * s * (1.0 + total))
    return np.where(fine, made, np.where(x == 0, -np.inf, np.where(x == np.inf, x, np.nan)))


def sqrt(x: Reals) -> Reals:
    """Newton's method from a guess that halves the exponent."""
    fine = (x > 0) & (x < np.inf)
    given = np.where(fine, x, 1.0)
    small = given < 2.2250738585072014e-308
    given = np.where(small, given * 18014398509481984.0, given)
    y = (np.ascontiguousarray(given).view(np.int64) // 2 + 2301339409586323456).view(np.float64)
    for _ in range(6):
        y = 0.5 * (y + given / y)
    made = y * np.where(small, 7.450580596923828e-09, 1.0)
    return np.where(fine, made, np.where((x == 0) | (x == np.inf), x, np.nan))


def tanh(x: Reals) -> Reals:
    """By e^2x, and the first two terms of its series near 0."""
    e = exp(2.0 * np.where(np.abs(x) <= 20.0, x, 0.0))
    made = np.where((x > -1e-3) & (x < 1e-3), x - x * x * x / 3.0, (e - 1.0) / (e + 1.0))
    made = np.where(x > 20.0, 1.0, np.where(x < -20.0, -1.0, made))
    return np.where(np.isnan(x), x, made)


def sigmoid(x: Reals) -> Reals:
    """By e to the negative absolute value, so that nothing overflows."""
    e = exp(np.where(x >= 0, -x, x))
    return np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def erf(x: Reals) -> Reals:
    """By 2 / sqrt(pi) e^(-x^2) sum of 2^k x^(2k+1) / (1 3 5 ... (2k+1)); Abramowitz and Stegun 7.1.6."""
    term, total, running = x.copy(), x.copy(), np.abs(x) <= 6.0
    for k in range(1, _TERMS):
        if not running.any():
            break
        term = np.where(running, term * (2.0 * x * x / (2.0 * k + 1.0)), term)
        total = np.where(running, total + term, total)
        running &= ~np.where(x > 0, term < 1e-18 * total, term >= 1e-18 * total)
    made = 1.1283791670955126 * exp(-x * x) * total
    return np.where(x > 6.0, 1.0, np.where(x < -6.0, -1.0, made))


def floor(x: Reals) -> Reals:
    """Give the largest whole number that is at most x; -0 stays."""
    return np.floor(x)


def ceil(x: Reals) -> Reals:
    """Give the smallest whole number that is at least x."""
    return -np.floor(-x)


def round_even(x: Reals) -> Reals:
    """To the nearest; half way to the even one."""
    down = np.floor(x)
    part = x - down
    return np.where((part > 0.5) | ((part == 0.5) & (np.floor(down / 2.0) * 2.0 != down)), down + 1.0, down)


def power(x: Reals, y: Reals) -> Reals:
    """By e^(y log x), and by products for 1, 2 and 3."""
    whole = np.floor(y) == y
    size = np.where(x == 0, np.where(y > 0, 0.0, np.inf), exp(y * log(np.abs(x))))
    even = np.floor(y / 2.0) * 2.0 == y
    made = np.where(even | ~whole, size, -size)
    made = np.where(~whole & (x != 0), np.nan, made)
    made = np.where(~whole & np.isinf(x), size, made)
    made = np.where((x > 0) | ((x == 0) & ~np.signbit(x)), size, made)
    made = np.where(y == 3, x * x * x, np.where(y == 2, x * x, np.where(y == 1, x, made)))
    made = np.where(np.isnan(x) | np.isnan(y), x + y, made)
    return np.where((y == 0) | (x == 1) | ((x == -1) & np.isinf(y)), 1.0, made)


def to_integer(x: Reals, wanted: np.dtype[Any]) -> npt.NDArray[Any]:
    """Convert as x86-64 does, out of range and for NaN too."""
    if wanted == np.uint64:
        above = x >= 9223372036854775808.0
        low = _to_int64(np.where(above, x - 9223372036854775808.0, x)).view(np.uint64)
        return np.where(above, low + np.uint64(1 << 63), low)
    if wanted.itemsize < 4 or wanted == np.int32:
        fine = (x > -2147483649.0) & (x < 2147483648.0)
        return np.where(fine, np.where(fine, x, 0.0).astype(np.int32), np.int32(-(2**31))).astype(wanted)
    return _to_int64(x).astype(wanted)


def _to_int64(x: Reals) -> npt.NDArray[np.int64]:
    fine = (x >= -9223372036854775808.0) & (x < 9223372036854775808.0)
    return np.where(fine, np.where(fine, x, 0.0).astype(np.int64), np.int64(-(2**63)))

"""The functions of libm that a graph needs, in C without libm.

They compute in double. Rounded to a float, the result is the exact value's float in all but few cases; the kernels of
ONNX Runtime approximate in float, and differ from it by a few units in the last place.
"""

from typing import Final

MACROS: Final = """\
/* No policy's prefix makes these names: a policy pb has a status PB_NAN. */
#if defined(__GNUC__)
#define PB_INFINITY __builtin_inff()
#define PB_QUIET_NAN __builtin_nanf("")
#else
#define PB_INFINITY ((float)(1e300 * 1e300))
#define PB_QUIET_NAN (PB_INFINITY - PB_INFINITY)
#endif
"""

NEEDS: Final = {
    "tanh": ("exp",),
    "sigmoid": ("exp",),
    "erf": ("exp",),
    "pow": ("exp", "log", "floor"),
    "round": ("floor",),
    "ceil": ("floor",),
    "to_uint64": ("to_int64",),
}
"""Which functions a function calls."""

FUNCTIONS: Final = {
    "exp": """\
static double PREFIX_exp(double x) {
  /* e^x = 2^n e^r, |r| <= ln(2)/2; the series of e^r to its 13th power. */
  int64_t n, bits;
  double r, s, scale;
  if (!(x == x)) return x;
  if (x > 709.782712893384) return PB_INFINITY;
  if (x < -745.1332191019412) return 0.0;
  n = (int64_t)(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
  r = (x - (double)n * 0.693147180369123816490) - (double)n * 1.90821492927058770002e-10;
  s = 1.0 / 6227020800.0;
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
    s *= 9.332636185032189e-302; /* 2^-1000 */
    n += 1000;
  }
  if (n > 1000) {
    s *= 1.0715086071862673e+301; /* 2^1000 */
    n -= 1000;
  }
  bits = (n + 1023) * INT64_C(4503599627370496);
  memcpy(&scale, &bits, sizeof scale);
  return s * scale;
}
""",
    "log": """\
static double PREFIX_log(double x) {
  /* x = 2^n m, m between the roots of 1/2 and 2; log(m) = 2 artanh((m - 1) / (m + 1)). */
  int64_t bits, n = 0;
  double m, s, t, sum;
  int k;
  if (!(x == x) || x < 0) return PB_QUIET_NAN;
  if (x == 0) return -PB_INFINITY;
  if (x == PB_INFINITY) return x;
  if (x < 2.2250738585072014e-308) {
    x *= 18014398509481984.0; /* 2^54 */
    n = -54;
  }
  memcpy(&bits, &x, sizeof bits);
  n += bits / INT64_C(4503599627370496) - 1023;
  bits = bits % INT64_C(4503599627370496) + INT64_C(1023) * INT64_C(4503599627370496);
  memcpy(&m, &bits, sizeof m);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++n;
  }
  s = (m - 1.0) / (m + 1.0);
  t = s * s;
  sum = 0.0;
  for (k = 25; k > 1; k -= 2) sum = (sum + 1.0 / k) * t;
  return (double)n * 0.693147180369123816490 + ((double)n * 1.90821492927058770002e-10 + 2.0 * s * (1.0 + sum));
}
""",
    "sqrt": """\
static double PREFIX_sqrt(double x) {
  /* Newton's method from a guess that halves the exponent. */
  int64_t bits;
  double y, scale = 1.0;
  int k;
  if (!(x == x) || x < 0) return PB_QUIET_NAN;
  if (x == 0 || x == PB_INFINITY) return x;
  if (x < 2.2250738585072014e-308) {
    x *= 18014398509481984.0; /* 2^54 */
    scale = 7.450580596923828e-09; /* 2^-27 */
  }
  memcpy(&bits, &x, sizeof bits);
  bits = bits / 2 + INT64_C(2301339409586323456);
  memcpy(&y, &bits, sizeof y);
  for (k = 0; k < 6; ++k) y = 0.5 * (y + x / y);
  return y * scale;
}
""",
    "tanh": """\
static double PREFIX_tanh(double x) {
  double e;
  if (x > 20.0) return 1.0;
  if (x < -20.0) return -1.0;
  if (x > -1e-3 && x < 1e-3) return x - x * x * x / 3.0;
  e = PREFIX_exp(2.0 * x);
  return (e - 1.0) / (e + 1.0);
}
""",
    "sigmoid": """\
static double PREFIX_sigmoid(double x) {
  double e;
  if (x >= 0) return 1.0 / (1.0 + PREFIX_exp(-x));
  e = PREFIX_exp(x);
  return e / (1.0 + e);
}
""",
    "erf": """\
static double PREFIX_erf(double x) {
  /* erf(x) = 2 / sqrt(pi) e^(-x^2) sum of 2^k x^(2k+1) / (1 3 5 ... (2k+1)); Abramowitz and Stegun 7.1.6. */
  double term = x, sum = x;
  int k;
  if (x > 6.0) return 1.0;
  if (x < -6.0) return -1.0;
  for (k = 1; k < 200; ++k) {
    term *= 2.0 * x * x / (2.0 * k + 1.0);
    sum += term;
    if (x > 0 ? term < 1e-18 * sum : term >= 1e-18 * sum) break;
  }
  return 1.1283791670955126 * PREFIX_exp(-x * x) * sum;
}
""",
    "floor": """\
static double PREFIX_floor(double x) {
  double whole;
  if (!(x > -4503599627370496.0 && x < 4503599627370496.0) || x == 0) return x;
  whole = (double)(int64_t)x;
  return whole > x ? whole - 1.0 : whole;
}
""",
    "ceil": "static double PREFIX_ceil(double x) { return -PREFIX_floor(-x); }\n",
    "round": """\
static double PREFIX_round(double x) {
  /* To the nearest; half way to the even one. */
  double down = PREFIX_floor(x), part = x - down;
  if (part > 0.5 || (part == 0.5 && PREFIX_floor(down / 2.0) * 2.0 != down)) return down + 1.0;
  return down;
}
""",
    "pow": """\
static double PREFIX_pow(double x, double y) {
  double size;
  int whole = PREFIX_floor(y) == y;
  if (y == 0 || x == 1 || (x == -1 && y - y != 0 && y == y)) return 1.0;
  if (!(x == x && y == y)) return x + y;
  if (y == 1) return x;
  if (y == 2) return x * x;
  if (y == 3) return x * x * x;
  if (x == 0) size = y > 0 ? 0.0 : PB_INFINITY;
  else size = PREFIX_exp(y * PREFIX_log(x < 0 ? -x : x));
  if (x > 0 || (x == 0 && 1.0 / x > 0)) return size;
  if (!whole && x - x != 0) return size;
  if (!whole && x != 0) return PB_QUIET_NAN;
  return PREFIX_floor(y / 2.0) * 2.0 == y || !whole ? size : -size;
}
""",
    "to_int64": """\
static int64_t PREFIX_to_int64(double x) {
  /* Out of range, and for NaN: what x86-64 gives. In C it is undefined. */
  if (x >= -9223372036854775808.0 && x < 9223372036854775808.0) return (int64_t)x;
  return -INT64_C(9223372036854775807) - 1;
}
""",
    "to_uint64": """\
static uint64_t PREFIX_to_uint64(double x) {
  if (x >= 9223372036854775808.0) return (uint64_t)PREFIX_to_int64(x - 9223372036854775808.0) + (UINT64_C(1) << 63);
  return (uint64_t)PREFIX_to_int64(x);
}
""",
    "to_int32": """\
static int32_t PREFIX_to_int32(double x) {
  if (x > -2147483649.0 && x < 2147483648.0) return (int32_t)x;
  return -2147483647 - 1;
}
""",
}


def functions(names: set[str], prefix: str) -> str:
    """Write the functions ``names``, and those that they call, before their callers."""
    wanted = set(names)
    for name in names:
        wanted.update(NEEDS.get(name, ()))
    return "\n".join(text.replace("PREFIX", prefix) for name, text in FUNCTIONS.items() if name in wanted)

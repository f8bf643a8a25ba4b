"""C, written: literals, tables, names."""

import math
import re
from collections.abc import Collection, Iterable
from textwrap import wrap
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError

_WORDS: Final = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef typeof typeof_unqual union unsigned void volatile while
alignas alignof and and_eq asm bitand bitor bool catch char8_t char16_t char32_t class co_await co_return co_yield compl
concept const_cast consteval constexpr constinit decltype delete dynamic_cast explicit export false friend mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public reinterpret_cast requires
static_assert static_cast template this thread_local throw true try typeid typename using virtual wchar_t xor xor_eq
NULL i386 linux unix int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t
"""
"""Keywords of C, C++ (the file compiles as both) and GNU C, and names that the headers define."""

KEYWORDS: Final = frozenset(_WORDS.split())

_C_TYPES: Final = {"f4": "float", "f8": "double", "b1": "uint8_t"} | {
    f"{kind}{size}": f"{'u' if kind == 'u' else ''}int{size * 8}_t" for kind in "iu" for size in (1, 2, 4, 8)
}


def c_type(dtype: np.dtype[Any]) -> str:
    """Give the C type of elements of ``dtype``; a bool is a uint8_t."""
    return _C_TYPES[dtype.str[1:]]


def has_c_type(dtype: np.dtype[Any]) -> bool:
    """Whether C has elements of ``dtype``."""
    return dtype.str[1:] in _C_TYPES


def identifier(name: str, taken: Collection[str] = ()) -> str:
    """Make an identifier of ``name`` that is not in ``taken``."""
    made = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if not made or made[0].isdigit() or made[0] == "_" or made in KEYWORDS:
        made = f"x_{made.lstrip('_')}"
    number, unique = 2, made
    while unique in taken:
        unique, number = f"{made}_{number}", number + 1
    return unique


def literal(value: Any, dtype: np.dtype[Any]) -> str:
    """Write one number so that it is read back bit for bit; NaN and infinities need the macros of the C file."""
    if dtype.kind == "f":
        return _real(float(value), "f" if dtype.itemsize == 4 else "")
    number = int(value)
    if dtype.kind == "b" or dtype.itemsize < 8:
        return str(number) if number > -(2**31) else "(-2147483647 - 1)"
    if dtype.kind == "u":
        return f"UINT64_C({number})"
    return f"INT64_C({number})" if number > -(2**63) else "(-INT64_C(9223372036854775807) - 1)"


def _real(number: float, suffix: str) -> str:
    if math.isnan(number):
        return "PB_QUIET_NAN"
    if math.isinf(number):
        return "PB_INFINITY" if number > 0 else "-PB_INFINITY"
    text = f"{number:.{9 if suffix else 17}g}"
    if not set(text) & set(".e"):
        text += ".0"
    return text + suffix


def table(kind: str, name: str, items: Iterable[str]) -> str:
    """Write a constant array."""
    lines = wrap(", ".join(items), 116, break_on_hyphens=False, break_long_words=False)
    body = "\n".join(f"  {line}" for line in lines)
    return f"static const {kind} {name}[] = {{\n{body}\n}};\n"


def array(name: str, values: npt.NDArray[Any]) -> str:
    """Write a constant array of the values."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return table(c_type(flat.dtype), name, (literal(each, flat.dtype) for each in flat))


def quoted(text: str) -> str:
    """Write a string of bytes; other than plain ones are octal escapes."""
    made = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in text.encode()
    )
    return f'"{made}"'


def included(file: str) -> str:
    """Write the name of a file behind ``#include``, where C knows no escapes.

    Raises:
        InvalidError: the name cannot stand there.

    """
    if set(file) & set('"\\\n'):
        raise InvalidError(
            f"a header cannot be named {file!r}: a quote, a backslash or a line break cannot be included"
        )
    return f'"{file}"'


def comment(text: str) -> str:
    """Write text so that it cannot end the comment that it stands in."""
    plain = "".join(each if each.isprintable() else " " for each in text)
    return plain.replace("*/", "* /").replace("/*", "/ *")

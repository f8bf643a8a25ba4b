"""Cures for msgspec's errors about a table: the fields and the values that there are."""

import re
from typing import Any, Final

import msgspec
from msgspec import inspect

from policybridge_core.text import meant

_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*?)`(?: - at `(\$.*)`)?", re.DOTALL)
_VALUE: Final = re.compile(r"Invalid enum value '(.*?)'(?: - at `(\$.*)`)?", re.DOTALL)
_TABLE: Final = re.compile(r"Expected `(?:str|int|float|bool)`, got `object` - at `\$.*\[\.\.\.\]`", re.DOTALL)
_STEP: Final = re.compile(r"\.(\w+)|\[")


def cure_of(error: msgspec.ValidationError, kind: type) -> str:
    """Give the end of a message about an unknown field or value of a ``kind``: all that there are.

    A table in the place of a text or number is what TOML makes of a dot in a name. Any other message ends as it is.
    """
    if _TABLE.fullmatch(str(error)):
        return "; a name with a dot in it is written in quotes"
    field, value = _UNKNOWN.fullmatch(str(error)), _VALUE.fullmatch(str(error))
    found = field or value
    if found is None:
        return ""
    at = _at(inspect.type_info(kind), found[2] or "$")
    if field and isinstance(at, inspect.StructType):
        names = [each.encode_name for each in at.fields]
    elif value and isinstance(at, inspect.LiteralType):
        names = [str(each) for each in at.values]
    else:
        return ""
    return f"; {meant(found[1], names)}there are {', '.join(names)}"


def _at(known: inspect.Type, path: str) -> inspect.Type:
    """Give the type at a path such as ``$.kinds[...].head``."""
    for step in _STEP.finditer(path):
        known = _inside(_given(known), step[1])
    return _given(known)


def _given(known: inspect.Type) -> inspect.Type:
    """Give the type of a value that may be ``None``."""
    types = known.types if isinstance(known, inspect.UnionType) else (known,)
    return next(each for each in types if not isinstance(each, inspect.NoneType))


def _inside(known: Any, name: str | None) -> inspect.Type:
    if isinstance(known, inspect.StructType):
        return next((each.type for each in known.fields if each.encode_name == name), inspect.AnyType())
    inside: inspect.Type = getattr(known, "value_type", getattr(known, "item_type", inspect.AnyType()))
    return inside

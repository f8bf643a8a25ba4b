"""The command line: lists, the baseline, and the defaults of each scenario."""

import argparse
from collections.abc import Collection
from typing import Any, Final

from policybridge_bench.ratios import Baseline
from policybridge_core.errors import InvalidError

_DEFAULTS: Final = {
    "contenders": "policybridge",
    "ways": "socket,grpc",
    "serdes": "bitstream",
    "backends": "onnx",
    "payloads": "inliner",
    "clients": "1,8",
    "rounds": 5,
    "seconds": 1.0,
    "limit": 1.1,
}


def fill(arguments: argparse.Namespace, **defaults: Any) -> None:
    """Set options without a value to the scenario's ``defaults``, else to those of all scenarios."""
    for name, value in {**_DEFAULTS, **defaults}.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)


def words(text: str) -> list[str]:
    """Read a list of words."""
    return [word.strip() for word in text.split(",") if word.strip()]


def names(text: str, kind: str, known: Collection[str]) -> list[str]:
    """Read a list of the ``known`` names of a ``kind``; ``all`` stands for all of them.

    Raises:
        InvalidError: a name is not known; the message lists those that are.

    """
    given = words(text)
    for name in given:
        if name not in known and name != "all":
            raise InvalidError(f"unknown {kind} {name!r}; there are {', '.join(known)}")
    return list(known) if "all" in given else given


def numbers(text: str) -> list[float]:
    """Read a list of numbers above 0.

    Raises:
        InvalidError: a word is not a number above 0.

    """
    try:
        given = [float(word) for word in words(text)]
    except ValueError as error:
        raise InvalidError(f"{text!r} is not a list of numbers: {error}") from error
    if any(not number > 0 for number in given):
        raise InvalidError(f"{text!r}: the numbers must be above 0")
    return given


def baseline(text: str | None) -> Baseline | None:
    """Read ``CONTENDER/WAY`` or ``CONTENDER``.

    Raises:
        InvalidError: the contender or the way is empty.

    """
    if text is None:
        return None
    contender, slash, way = text.partition("/")
    if not contender or (slash and not way):
        raise InvalidError(f"a baseline is CONTENDER or CONTENDER/WAY, such as grpc-echo/unary, not {text!r}")
    return Baseline(contender, way)

"""The command line: lists, the baseline, and the defaults of each scenario."""

import argparse
from collections.abc import Sequence
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
    """Set the options that were not given: to the scenario's ``defaults``, or else to those of all scenarios."""
    for name, value in {**_DEFAULTS, **defaults}.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)


def words(text: str, all_of_them: Sequence[str] | None = None) -> list[str]:
    """Read a list of words; ``all`` stands for ``all_of_them``."""
    given = [word.strip() for word in text.split(",") if word.strip()]
    return list(all_of_them) if "all" in given and all_of_them is not None else given


def numbers(text: str) -> list[float]:
    """Read a list of numbers above 0.

    Raises:
        InvalidError: a word is no number above 0.

    """
    try:
        given = [float(word) for word in words(text)]
    except ValueError as error:
        raise InvalidError(f"{text!r} is no list of numbers: {error}") from error
    if any(not number > 0 for number in given):
        raise InvalidError(f"{text!r}: numbers above 0 are wanted")
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

"""Lists on the command line."""

from collections.abc import Sequence

from policybridge_bench.results import Case
from policybridge_core.errors import InvalidError


def words(text: str, all_of_them: Sequence[str] | None = None) -> list[str]:
    """Read a list of words; ``all`` stands for ``all_of_them``."""
    given = [word.strip() for word in text.split(",") if word.strip()]
    return list(all_of_them) if "all" in given and all_of_them is not None else given


def numbers(text: str) -> list[float]:
    """Read a list of numbers above 0.

    Raises:
        InvalidError: it is none.

    """
    try:
        given = [float(word) for word in words(text)]
    except ValueError as error:
        raise InvalidError(f"{text!r} is no list of numbers: {error}") from error
    if any(not number > 0 for number in given):
        raise InvalidError(f"{text!r}: numbers above 0 are wanted")
    return given


def baseline(text: str | None) -> Case | None:
    """Read ``CONTENDER/WAY``.

    Raises:
        InvalidError: it is none.

    """
    if text is None:
        return None
    contender, slash, way = text.partition("/")
    if not (contender and slash and way):
        raise InvalidError(f"a baseline is CONTENDER/WAY, such as grpc-echo/unary, not {text!r}")
    return Case(contender=contender, way=way, generator="", clients=0)

"""Builds by a setup.py: setuptools takes an extension for up to date that is newer than its sources."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_SETUP: Final = "setup.py"
_FORCED: Final = ("build", "build_clib", "build_ext")
"""Commands of setuptools that compile; all others that do so run the first."""


def _script(build: Sequence[str]) -> int | None:
    return next((index for index, word in enumerate(build) if Path(word).name == _SETUP), None)


def removed(build: Sequence[str]) -> Iterator[str]:
    """Remove what setuptools takes for up to date, where another program starts it that cannot tell it (pip)."""
    made = sorted(map(str, Path().glob("build/lib.*-*")))
    if made and _script(build) is None and (Path(_SETUP).exists() or Path("pyproject.toml").exists()):
        yield shlex.join(["rm", "-r", *made])


def anew(build: Sequence[str]) -> list[str]:
    """Let a setup.py compile all extensions again."""
    words, script = list(build), _script(build)
    if script is None:
        return words
    given = next((index for index, word in enumerate(words) if index > script and word in _FORCED), None)
    if given is None:
        return [*words[: script + 1], "build", "--force", *words[script + 1 :]]
    return [*words[: given + 1], "--force", *words[given + 1 :]]

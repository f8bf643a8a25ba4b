"""Whether a compiler cache started this process: what is compiled then is kept by the command line alone."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_CACHES: Final = frozenset(["ccache", "sccache", "buildcache"])
_MOST_PARENTS: Final = 4
"""The cache starts a wrapper, and that the program, at most."""


def compiler_cache() -> str:
    """Give the name of the compiler cache that started this process, empty for none; known on Linux alone."""
    process = os.getppid()
    for _ in range(_MOST_PARENTS):
        if process <= 1:
            break
        # A process of somebody else's, or one that has just ended, tells nothing.
        with suppress(OSError):
            program = Path(f"/proc/{process}/exe").readlink().name
            if program in _CACHES:
                return program
        process = _parent_of(process)
    return ""


def _parent_of(process: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        # The name in parentheses may hold anything; behind it come the state and the parent.
        return int(Path(f"/proc/{process}/stat").read_bytes().rpartition(b") ")[2].split()[1])
    return 0

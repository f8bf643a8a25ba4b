"""The compiler cache that started this process: its key is the command line alone."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_CACHES: Final = frozenset(["ccache", "sccache", "buildcache"])
_MOST_PARENTS: Final = 4
"""Most processes between a cache and this program: the cache starts a wrapper, which starts the program."""


def compiler_cache() -> str:
    """Give the name of the compiler cache that started this process, or an empty text. Needs /proc."""
    process = os.getppid()
    for _ in range(_MOST_PARENTS):
        if process <= 1:
            break
        # A process of another user, or one that has just ended, cannot be read.
        with suppress(OSError):
            program = Path(f"/proc/{process}/exe").readlink().name
            if program in _CACHES:
                return program
        process = _parent_of(process)
    return ""


def _parent_of(process: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        # The name in parentheses may hold anything; after it come the state and the parent.
        return int(Path(f"/proc/{process}/stat").read_bytes().rpartition(b") ")[2].split()[1])
    return 0

"""Redirects policies' output to standard error with the policy's name; only the server writes to standard output.

Standard output may be read by a program that waits for the line ``ready``. The descriptor itself leads to standard
error, too, so that neither a library nor a policy's child process writes into it.
"""

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TextIO

from policybridge_core.authors import POLICY_MODULE
from policybridge_server.log import printed

_MOST_KEPT: Final = 1 << 13
"""Bytes of a line that is not ended yet."""


@contextmanager
def own_output() -> Iterator[TextIO]:
    """Reserve the standard output for the caller; redirect all other writers to standard error."""
    shown, kept = sys.stdout, _duplicate(1)
    if kept is not None:
        shown.flush()
        with suppress(OSError):
            os.dup2(2, 1)
    name_output()
    try:
        # An object that no longer writes to descriptor 1, as in a program that embeds the server, stays unchanged.
        yield shown if kept is None or not _is_standard(shown) else os.fdopen(os.dup(kept), "w", encoding="utf-8")
    finally:
        sys.stdout = shown
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


def name_output(name: str = "") -> None:
    """Lead ``sys.stdout`` to standard error, each line with the name of the policy that prints.

    Args:
        name: of the only policy in this process; empty: it is found out.

    """
    sys.stdout = io.TextIOWrapper(_Lines(name), "utf-8", "backslashreplace", write_through=True)


def _duplicate(descriptor: int) -> int | None:
    with suppress(OSError):
        return os.dup(descriptor)
    return None


def _is_standard(stream: TextIO) -> bool:
    with suppress(OSError, ValueError):
        return stream.fileno() == 1
    return False


class _Lines(io.RawIOBase):
    """Takes bytes from any thread and writes whole lines."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun: dict[int, bytes] = {}

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, data: Any) -> int:
        thread = threading.get_ident()
        text = self._begun.pop(thread, b"") + bytes(data)
        *lines, rest = text.split(b"\n")
        if len(rest) > _MOST_KEPT:
            lines, rest = [*lines, rest], b""
        if rest:
            self._begun[thread] = rest
        if lines and sys.stderr is not None:
            printed(self._name or _speaker(), [line.decode(errors="backslashreplace") for line in lines])
        return len(data)


def _speaker() -> str:
    """Name the policy that prints: by its thread, or by its code on the loop thread."""
    name = threading.current_thread().name
    if "@" in name:
        return name
    frame = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(POLICY_MODULE):
            return Path(str(frame.f_globals.get("__file__", ""))).parent.parent.name
        frame = frame.f_back  # type: ignore[assignment]
    return "policybridge serve"

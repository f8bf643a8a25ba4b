"""Errors of other people's code, which may raise anything: ``SystemExit``, or an error whose text cannot be made."""

import signal
import threading
import traceback as tracebacks
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

POLICY_MODULE: Final = "policybridge_policy_"
"""Beginning of the names of modules of a Python policy's own code."""

_MOST_TEXT: Final = 2000
_MOST_TRACEBACK: Final = 20_000
"""Most characters of an author's text in the log and to clients; the text may be of any length."""


def describe(error: BaseException) -> str:
    """Give an error's class, its text and, if it comes from the policy's own code, the line there."""
    name, text = type(error).__name__, text_of(error)
    raised = [
        (file, line)
        for file, line, module in frames(error.__traceback__)
        if module.startswith(POLICY_MODULE) and not file.startswith("<")
    ]
    where = f" ({Path(raised[-1][0]).name}, line {raised[-1][1]})" if raised else ""
    return f"{name}: {text}{where}" if text else f"{name}{where}"


def text_of(error: BaseException) -> str:
    """Give an error's text as Unicode, cut to `_MOST_TEXT`; empty if making it fails."""
    try:
        text = str(error)
    except BaseException:
        return ""
    # The author's class may be a str that does anything in its methods: call those of str itself.
    return _plain(str.__getitem__(text, slice(_MOST_TEXT + 1)), _MOST_TEXT)


def traceback_of(error: BaseException) -> str:
    """Give an error's traceback for the log; the end of it, if it is too long."""
    try:
        lines = tracebacks.format_exception(error)
    except BaseException:
        lines = tracebacks.format_tb(error.__traceback__)
    # A line may have the error's text.
    whole = "".join(_plain(line, _MOST_TEXT) + "\n" * (len(line) > _MOST_TEXT) for line in lines)
    return whole if len(whole) <= _MOST_TRACEBACK else f"…{whole[-_MOST_TRACEBACK:]}"


def _plain(text: str, most: int) -> str:
    shown = text if len(text) <= most else f"{text[:most]}…"
    return shown.encode(errors="replace").decode()


def interrupts(error: BaseException) -> bool:
    """Whether ``error`` is the user's Ctrl-C, and not an error of the code that raised it.

    A server takes signals without exceptions, so that there no error is one.
    """
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def frames(traceback: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    """Give file, line and module of each frame, the innermost last."""
    while traceback is not None:
        frame = traceback.tb_frame
        yield frame.f_code.co_filename, traceback.tb_lineno, str(frame.f_globals.get("__name__", ""))
        traceback = traceback.tb_next

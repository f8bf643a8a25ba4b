"""Shared by the commands of this package: counts as arguments, errors and interrupts as exit statuses."""

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from policybridge_core.errors import PolicyBridgeError

INTERRUPTED: Final = 130
_FAILED: Final = 2


def count(text: str) -> int:
    """Read an argument that is 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def status_of(command: str, work: Callable[[], int], interrupted: str | Callable[[], str]) -> int:
    """Do a command's work; give its exit status, 2 after an error, and 130 after Ctrl-C, SIGTERM or SIGHUP.

    Args:
        command: the command's name.
        work: gives the exit status.
        interrupted: is said after an interrupt, or gives it then.

    """
    try:
        with _ended_by_signals():
            return work()
    except (PolicyBridgeError, OSError) as error:
        sys.stderr.write(f"policybridge {command}: {error}\n")
        return _FAILED
    except KeyboardInterrupt:
        said = interrupted if isinstance(interrupted, str) else interrupted()
        sys.stderr.write(f"policybridge {command}: interrupted; {said}\n")
        return INTERRUPTED


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP do what Ctrl-C does, unless they are ignored or handled otherwise."""
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt

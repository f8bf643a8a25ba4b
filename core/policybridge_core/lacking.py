"""The end of each message about a part that is not there: a program, a plugin, a store, a server."""

from typing import Final

_DOCTOR: Final = "policybridge doctor tells what this machine has"


def lacking(message: str) -> str:
    """Name the command that shows which parts there are, and how to get the others."""
    return f"{message}; {_DOCTOR}"

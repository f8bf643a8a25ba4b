"""The one way to a terminal: texts of clients, policies, leaders and models must not steer it or forge a line."""

import os
import re
import sys
from typing import Any, Final

from policybridge_core.text import printable

_UNSAFE: Final = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""What JSON may hold as it is, and a terminal obeys: C1 controls such as U+009B, and marks that reorder a line."""


def say(text: str) -> None:
    """Write lines to standard output; other control characters of the text are replaced."""
    print(plain(text))


def complain(text: str) -> None:
    """Write a message to standard error; the lines of its text after the first are indented."""
    sys.stderr.write(f"{indented(text)}\n")


def leave_reader() -> None:
    """Discard the rest of standard output: its reader has closed it, as `head` does."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def plain(text: str) -> str:
    """Replace all control characters but line ends."""
    return "\n".join(map(printable, text.expandtabs(4).split("\n")))


def indented(text: str) -> str:
    """Replace all control characters, and indent all lines but the first: none looks like a message of its own."""
    return plain(text).replace("\n", "\n    ")


def as_json(value: Any) -> str:
    """Write JSON in one line; what would steer a terminal is escaped."""
    # Imported late: the first milliseconds of a compile count.
    import msgspec  # noqa: PLC0415

    return escaped(msgspec.json.encode(value).decode())


def escaped(json: str) -> str:
    """Escape in a JSON text what would steer a terminal; the value stays the same."""
    return _UNSAFE.sub(lambda unsafe: f"\\u{ord(unsafe[0]):04x}", json)


def cleaned(value: Any) -> Any:
    """Give a struct of msgspec with every text in it printable, so that lines and tables can be made of it."""
    import msgspec  # noqa: PLC0415

    return msgspec.convert(_cleaned(msgspec.to_builtins(value)), type(value), strict=False)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(each) for key, each in value.items()}
    return [_cleaned(each) for each in value] if isinstance(value, list) else value

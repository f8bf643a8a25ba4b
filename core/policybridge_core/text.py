"""Text: checks before it is sent, and suggestions for misspelt names."""

import os
import re
from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import Final

_FOLDERS: Final = re.compile(r"(?<![\w.-])/([^\s/'\"()<>|,;:]+)/(?:[^\s/'\"()<>|,;:]+/)*")
"""The folders of an absolute path, up to its last name."""

_MOST_NAMES: Final = 64
_LONGEST_NAME: Final = 64
"""Most names, and characters of a name, that `meant` compares: it then takes a millisecond at most."""


def is_unicode(text: str) -> bool:
    """Tell whether ``text`` is valid Unicode; the ``str`` of a file name that is not UTF-8 is not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def without_paths(text: str) -> str:
    """Replace the folders of this machine's absolute paths by dots, to hide the server's folders from clients.

    Texts that only look like paths stay: ``/package.Service/Method``, ``/v2/models``.
    """
    return _FOLDERS.sub(lambda path: ".../" if path[1] in _top() else path[0], text)


def printable(text: str) -> str:
    """Replace characters that steer a terminal or break a line: names come from any client."""
    return (
        text
        if text.isprintable()
        else "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    )


class PeerText(str):
    """A text from another server, cut to 300 characters and printable: the type of all texts that are kept of one."""

    __slots__ = ()
    LONGEST: Final = 300

    def __new__(cls, text: str) -> "PeerText":
        """Make it of any text."""
        cut = text if len(text) <= cls.LONGEST else f"{text[: cls.LONGEST - 1]}…"
        return super().__new__(cls, printable(cut))


@cache
def _top() -> frozenset[str]:
    return frozenset(os.listdir("/"))  # noqa: PTH208 - names are wanted, not paths


def meant(name: str, names: Iterable[str], most: int = _MOST_NAMES) -> str:
    """Give "did you mean X? " with the closest of the first ``most`` names; empty if none is close."""
    # Imported late: only errors need it.
    from difflib import get_close_matches  # noqa: PLC0415

    # Bounded: a client chooses the name, and all clients wait during the comparison.
    close = get_close_matches(name, list(islice(names, most)), n=1) if len(name) <= _LONGEST_NAME else []
    return f"did you mean {close[0]!r}? " if close else ""

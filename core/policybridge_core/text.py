"""Text: checking it before it is sent, and finding what was meant."""

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
"""With so many names, and a name of so many characters, what was meant is found within a millisecond."""


def is_unicode(text: str) -> bool:
    """Say whether ``text`` is valid Unicode; a file name that is not UTF-8 gives a ``str`` that is not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def without_paths(text: str) -> str:
    """Replace the folders of this machine's absolute paths by dots: a client need not know where a server's files lie.

    Texts that only look like paths stay: ``/package.Service/Method``, ``/v2/models``.
    """
    return _FOLDERS.sub(lambda found: ".../" if found[1] in _top() else found[0], text)


def printable(text: str) -> str:
    """Replace what would steer a terminal, or break a line: names come from anybody who compiles or publishes."""
    return (
        text
        if text.isprintable()
        else "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    )


@cache
def _top() -> frozenset[str]:
    return frozenset(os.listdir("/"))  # noqa: PTH208 - names are wanted, not paths


def meant(name: str, names: Iterable[str]) -> str:
    """Give "did you mean X? " for the one of ``names`` that is spelt most like ``name``; empty if none is."""
    # Imported late: it is needed for errors alone.
    from difflib import get_close_matches  # noqa: PLC0415

    # Bounded: a client chooses the name, and a server's clients wait while it is compared.
    close = get_close_matches(name, list(islice(names, _MOST_NAMES)), n=1) if len(name) <= _LONGEST_NAME else []
    return f"did you mean {close[0]!r}? " if close else ""

"""The sentences of the pages that promise something, by their words."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

WORDS: Final = re.compile(
    r"\b(never|always|at most|at least|refuse[sd]?|keeps?|kept|falls? back|by default|cannot|may not|survives?|lost"
    r"|bounded|within|beyond|until|exactly|at once|only|stays?|alone|ignored|interrupted|retried|rejected|limits?)\b"
    r"|\(default",
    re.IGNORECASE,
)
"""A sentence with one of these words says how the product behaves in every case."""

_LEFT_OUT: Final = re.compile(r"^```.*?^```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_PARTS: Final = re.compile(r"\n\s*\n|\n(?=[#|*-]|\d+\. )|\s\|\s|(?<=[.:;?!])\s+(?=[A-Z`*\[-])")
_NAMES: Final = re.compile(r"`[^`]*`|\]\([^)]*\)")
"""Code and the targets of links: a word there names an option, a key or a heading."""

_LEAST: Final = 20
"""Characters of a sentence; a shorter part is a heading or a cell with a name."""


def plain(text: str) -> str:
    """Give a text with one blank between its words."""
    return " ".join(text.split())


def sentences(page: Path) -> Iterator[str]:
    """Give the sentences of a page and the cells of its tables, without code blocks."""
    parts = (plain(part).strip("| ") for part in _PARTS.split(_LEFT_OUT.sub("", page.read_text(encoding="utf-8"))))
    return (part for part in parts if len(part) >= _LEAST and not part.startswith("#"))


def promising(page: Path) -> list[str]:
    """Give those with a promising word."""
    return [part for part in sentences(page) if WORDS.search(_NAMES.sub("", part))]

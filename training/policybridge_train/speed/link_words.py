"""The words of a link that is done again: other inputs, and none of the files that it writes beside the program."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

_DROPPED_WITH_VALUE: Final = ("-o", "--output", "-x", "-MF", "-MJ")
_DROPPED: Final = re.compile(r"-o(?!bjc).+|--output=.*|-x.+|-M[FJ].+")
_LIBRARY: Final = ("-l", "--library")
_BESIDE: Final = re.compile(r"--?(?P<name>Map|dependency-file|out-implib|reproduce)(?P<value>=.*)?")
"""Options of linkers that name a file to write: the build's own would be overwritten."""


def relinked(words: Iterable[str], swap: Callable[[str], str]) -> Iterator[str]:
    """Give a compiler's words without its outputs, and with each input that ``swap`` changes.

    Args:
        words: of the command that linked.
        swap: gives the word in place of another, the same word if it names nothing that was changed.

    """
    flat = _without_files(_flat(words))
    for is_linkers, word in flat:
        if not is_linkers and word in _DROPPED_WITH_VALUE:
            next(flat, None)
        elif is_linkers or not _DROPPED.fullmatch(word):
            named = f"-l{next(flat, (False, ''))[1]}" if word in _LIBRARY else word
            # Not -Wl, whose words end at a comma: a path may have one.
            yield from ("-Xlinker", swap(named)) if is_linkers else (swap(named),)


def _flat(words: Iterable[str]) -> Iterator[tuple[bool, str]]:
    """Give each word, and whether the compiler hands it to the linker unread."""
    rest = iter(words)
    for word in rest:
        if word.startswith("-Wl,"):
            yield from ((True, each) for each in word[4:].split(","))
        elif word == "-Xlinker":
            yield from ((True, each) for each in (next(rest, None),) if each is not None)
        else:
            yield False, word


def _without_files(flat: Iterator[tuple[bool, str]]) -> Iterator[tuple[bool, str]]:
    for is_linkers, word in flat:
        beside = _BESIDE.fullmatch(word) if is_linkers else None
        if beside is None:
            yield is_linkers, word
        elif beside["value"] is None:
            next(flat, None)

"""``policybridge size-report``: how two builds' programs and libraries differ in bytes, for a pull request."""

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from policybridge_core.errors import NotFoundError
from policybridge_core.json_text import json_text
from policybridge_train.checking.linked import linked_files, percent
from policybridge_train.command_line import count, status_of
from policybridge_train.objects.elf import ObjectFile

_LARGER: Final = 1

_DESCRIPTION: Final = """
Compares the programs and libraries of two builds: bytes by file, by section and by function, and what grew most, as
Markdown or JSON.
"""


class Change(msgspec.Struct, frozen=True):
    """Bytes of one thing in both builds; 0 where it is not there."""

    name: str
    before: int
    after: int

    @property
    def difference(self) -> int:
        """By how many bytes it grew."""
        return self.after - self.before


class Report(msgspec.Struct, frozen=True):
    """The difference of two builds.

    Attributes:
        text: bytes that are loaded and not written, of all files.
        files: the text of each file.
        sections: bytes in memory, summed over the files by the section's name.
        functions: those whose size differs, by file and name; the ones that grew most come first.

    """

    text: Change
    files: Sequence[Change]
    sections: Sequence[Change]
    functions: Sequence[Change]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = (
        "Exit status: 0; 1 if their text grew by more than --limit; 2 for what cannot be done; 130 after an interrupt."
    )
    parser.description = _DESCRIPTION
    add = parser.add_argument
    add("before", type=Path, metavar="BEFORE", help="a build's folder, or one program, library or object")
    add("after", type=Path, metavar="AFTER", help="the same of the other build")
    add("--limit", type=percent, metavar="PERCENT", help="the growth of text that is a failure (default: none is)")
    add(
        "--most",
        type=count,
        default=10,
        metavar="N",
        help="functions shown that grew most, and as many that shrank most",
    )
    add("--json", action="store_true", help="write all as JSON, not Markdown")


def run(arguments: argparse.Namespace) -> int:
    """Compare; return the exit status."""
    return status_of("size-report", lambda: _run(arguments), "nothing was written")


def _run(arguments: argparse.Namespace) -> int:
    made = report(_read(arguments.before), _read(arguments.after))
    if arguments.json:
        print(json_text(made))
    else:
        print("\n".join(_markdown(made, arguments.most)))
    before, grown_by = made.text.before, made.text.difference
    grown = 100 * grown_by / before if before else math.inf if grown_by else 0.0
    if arguments.limit is None or grown <= arguments.limit:
        return 0
    sys.stderr.write(f"policybridge size-report: text grew by {grown:.2f} %, and the limit is {arguments.limit:g} %\n")
    return _LARGER


def _read(place: Path) -> Mapping[str, ObjectFile]:
    """Read the files of a build by their paths in it; a single file has no path."""
    if place.is_file():
        return {"": ObjectFile.read(place)}
    found = {str(path.relative_to(place)): ObjectFile.read(path) for path in linked_files(place)}
    if not found:
        raise NotFoundError(f"{place} holds no program and no shared library: give the folder of a build that linked")
    return found


def report(before: Mapping[str, ObjectFile], after: Mapping[str, ObjectFile]) -> Report:
    """Compare two builds, files by their names."""
    files = _changes(_texts(before), _texts(after))
    total = Change("text", sum(each.before for each in files), sum(each.after for each in files))
    functions = [each for each in _changes(_functions(before), _functions(after)) if each.difference]
    return Report(total, files, _changes(_sections(before), _sections(after)), functions)


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> list[Change]:
    """Pair sizes by name; what grew most comes first."""
    names = sorted(before.keys() | after.keys())
    changes = [Change(name, before.get(name, 0), after.get(name, 0)) for name in names]
    return sorted(changes, key=lambda change: -change.difference)


def _texts(files: Mapping[str, ObjectFile]) -> dict[str, int]:
    return {name: file.text for name, file in files.items()}


def _sections(files: Mapping[str, ObjectFile]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for file in files.values():
        for name, size in file.loaded.items():
            sizes[name] = sizes.get(name, 0) + size
    return sizes


def _functions(files: Mapping[str, ObjectFile]) -> dict[str, int]:
    return {
        f"{path}: {function}" if path else function: size
        for path, file in files.items()
        for function, size in file.functions.items()
    }


def _markdown(made: Report, most: int) -> Iterator[str]:
    yield f"**text: {_bytes(made.text)}**"
    yield from _table("file", made.files)
    yield from _table("section", [each for each in made.sections if each.difference])
    grown = [each for each in made.functions if each.difference > 0]
    shrunk = [each for each in made.functions[::-1] if each.difference < 0]
    yield from _table("function that grew most", grown[:most])
    yield from _table("function that shrank most", shrunk[:most])


def _bytes(change: Change) -> str:
    part = f" ({100 * change.difference / change.before:+.2f} %)" if change.before else ""
    return f"{change.before:,} → {change.after:,} bytes, {change.difference:+,}{part}"


def _table(heading: str, changes: Sequence[Change]) -> Iterator[str]:
    if not changes:
        return
    yield from ("", f"| {heading} | before | after | difference |", "|---|--:|--:|--:|")
    for each in changes:
        yield f"| {_cell(each.name)} | {each.before:,} | {each.after:,} | {each.difference:+,} |"


def _cell(name: str) -> str:
    """Make a name of any bytes a cell of Markdown."""
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name or "the file")
    return f"`{shown.replace('|', chr(92) + '|').replace('`', chr(39))}`"

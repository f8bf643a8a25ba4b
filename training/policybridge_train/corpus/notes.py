"""The wrappers' notes: a file for each command of a compiler, linker or archiver, in the order of their starts."""

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from policybridge_train.corpus.wrappers import LAUNCHERS, tool_name

_VARIABLES: Final = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
_HEAD: Final = 2 + len(_VARIABLES) + 1
_DEEPEST: Final = 10
"""Response files within each other that are followed."""


@dataclass(frozen=True)
class BuildCommand:
    """One process of a build.

    Attributes:
        folder: in which it ran.
        tool: the file that was run; the compiler's own where a launcher (ccache) stood before it.
        arguments: without the tool's name; response files are expanded.
        variables: those that name folders of headers, if they were set.

    """

    folder: Path
    tool: str
    arguments: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The tool's name without its folder; see `tool_name`."""
        return tool_name(str(self.folder / self.tool)) if "/" in self.tool else self.tool

    def path(self, word: str) -> Path:
        """Give the file that an argument names, absolute and without links, so that it has one name."""
        return Path(os.path.realpath(self.folder / word))


def read_notes(notes: Path) -> list[BuildCommand]:
    """Read all commands, in the order in which they were noted. A note that a killed build cut off is left out."""
    files = [(entry.stat().st_mtime_ns, entry.name, entry.path) for entry in os.scandir(notes) if _is_note(entry.name)]
    commands = (_read(Path(path)) for _, _, path in sorted(files))
    return [command for command in commands if command is not None]


def _is_note(name: str) -> bool:
    return name.count(".") == 1


def _read(note: Path) -> BuildCommand | None:
    words = os.fsdecode(note.read_bytes()).split("\0")
    head, arguments = words[:_HEAD], words[_HEAD:-1]
    if len(head) < _HEAD or not head[-1].isdigit() or int(head[-1]) != len(arguments):
        return None
    variables = {name: value for name, value in zip(_VARIABLES, head[2:], strict=False) if value}
    folder = Path(head[0])
    return build_command(folder, [head[1], *expanded(_copied(note, arguments), folder)], variables)


def build_command(folder: Path, words: Sequence[str], variables: dict[str, str] | None = None) -> BuildCommand | None:
    """Make a command of its words, without the launchers before the compiler; ``None`` if only launchers are there."""
    start = 0
    while start < len(words) and (LAUNCHERS.fullmatch(Path(words[start]).name) or _is_setting(words, start)):
        start += 1
    if start == len(words):
        return None
    return BuildCommand(folder, words[start], tuple(words[start + 1 :]), variables or {})


def _is_setting(words: Sequence[str], index: int) -> bool:
    """Tell whether a word behind a launcher is an option of its own or a setting (``ccache base_dir=/x gcc …``)."""
    return index > 0 and ("=" in words[index] or words[index].startswith("-"))


def _copied(note: Path, arguments: Sequence[str]) -> Iterator[str]:
    for index, word in enumerate(arguments):
        copy = note.with_name(f"{note.name}.{index}")
        if word.startswith("@") and copy.exists():
            yield from read_response(copy)
        else:
            yield word


def expanded(words: Iterable[str], folder: Path, depth: int = _DEEPEST) -> Iterator[str]:
    """Put the words of response files, also of those that they name, in their place; a file that is gone stays a word.

    Args:
        words: of a command.
        folder: in which it runs; the files' names are relative to it.
        depth: how deep files are followed: one that names itself has no end.

    """
    for word in words:
        if depth and word.startswith("@") and (folder / word[1:]).is_file():
            yield from expanded(read_response(folder / word[1:]), folder, depth - 1)
        else:
            yield word


def read_response(file: Path) -> list[str]:
    """Split a response file into words, as GCC and LLVM do (libiberty, expandargv); an odd one is one word a line."""
    text = os.fsdecode(file.read_bytes())
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()

"""Which objects a build put into which programs: the commands of linkers and archivers, followed in their order."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from policybridge_train.corpus.invocation import Invocation, parse_compiler
from policybridge_train.corpus.notes import BuildCommand, read_response
from policybridge_train.corpus.wrappers import ARCHIVERS, LINKERS

Made = Literal["executable", "shared", "archive", "object"]

_ARCHIVER_WITH_VALUE: Final = frozenset(("--plugin", "--target", "--output"))
_LINKER_WITH_VALUE: Final = frozenset(
    (
        *("-T", "--script", "-u", "--undefined", "-z", "-e", "--entry", "-R", "-rpath", "--rpath", "-soname"),
        *("-h", "-m", "-Map", "-dynamic-linker", "--dynamic-linker", "-rpath-link", "--version-script", "-plugin"),
        *("-dT", "-f", "-F", "-G", "-I", "-y", "-Y", "-A", "-b", "--format", "-c", "--defsym", "-a", "-O", "--sysroot"),
    )
)


_LISTS: Final = frozenset(("version-script", "dynamic-list", "retain-symbols-file", "exclude-libs"))
"""Options that limit what a file shows to others."""


@dataclass(frozen=True)
class Linked:
    """A file that a linker or archiver wrote.

    Attributes:
        path: absolute.
        kind: a Program's, or a relocatable object.
        inputs: objects and archives in the order of the command, absolute.
        whole: which of the archives are linked wholly.
        is_listed: whether a list says which names the file shows to others.

    """

    path: Path
    kind: Made
    inputs: tuple[Path, ...]
    whole: frozenset[Path] = frozenset()
    is_listed: bool = False


@dataclass(frozen=True)
class Extracted:
    """The members of an archive were written into a folder, as libtool does with its convenience libraries."""

    folder: Path
    archive: Path


def read_links(commands: Iterable[BuildCommand]) -> list[Linked | Extracted]:
    """Read all commands that link or archive, in their order."""
    return [linked for command in commands for linked in _read(command)]


def _read(command: BuildCommand) -> Iterator[Linked | Extracted]:
    invocation = parse_compiler(command)
    if invocation is not None:
        if invocation.stage == "link":
            yield from _by_compiler(invocation)
    elif ARCHIVERS.fullmatch(command.name):
        yield from _archived(command)
    elif LINKERS.fullmatch(command.name):
        yield from _by_linker(command)


def _by_compiler(invocation: Invocation) -> Iterator[Linked]:
    sources = {source.word: invocation.object_of(source) for source in invocation.sources}
    line = _Line(invocation.command, sources)
    line.read(_unwrapped(invocation.linking))
    if line.inputs:
        yield line.linked(invocation.output or "a.out")


def _by_linker(command: BuildCommand) -> Iterator[Linked]:
    line = _Line(command, {})
    line.read(command.arguments)
    if line.inputs:
        yield line.linked(line.output or "a.out")


def _unwrapped(words: Sequence[str]) -> Iterator[str]:
    """Give the words as the linker gets them from the compiler's driver."""
    rest = iter(words)
    for word in rest:
        if word.startswith("-Wl,"):
            yield from word[4:].split(",")
        elif word == "-Xlinker":
            yield from (next(rest, ""),)
        else:
            yield word


@dataclass
class _Line:
    """A linker's command line while it is read."""

    command: BuildCommand
    sources: dict[str, Path]
    inputs: list[Path] = field(default_factory=list)
    output: str | None = None
    _kind: Made = "executable"
    _folders: list[Path] = field(default_factory=list)
    _whole: set[Path] = field(default_factory=set)
    _is_whole: bool = False
    _is_static: bool = False
    _is_listed: bool = False

    def read(self, words: Iterable[str]) -> None:
        """Read words; libraries are looked for when all folders (-L) are known."""
        wanted: list[tuple[str, bool, bool]] = []
        rest = iter(words)
        for word in rest:
            self._is_listed |= word.lstrip("-").partition("=")[0] in _LISTS and word.startswith("-")
            if word.startswith("@") and self.command.path(word[1:]).is_file():
                self.read(read_response(self.command.path(word[1:])))
            elif word == "-o":
                self.output = next(rest, None)
            elif word in ("-l", "-L", "--library", "--library-path"):
                self._word(f"{'-L' if word in ('-L', '--library-path') else '-l'}{next(rest, '')}", wanted)
            elif word in _LINKER_WITH_VALUE:
                next(rest, None)
            else:
                self._word(word, wanted)
        for word, whole, static in wanted:
            self._input(word, whole=whole, static=static)

    def linked(self, output: str) -> Linked:
        """Give the linked file, its kind and its inputs."""
        path, inputs = self.command.path(output), tuple(self.inputs)
        return Linked(path, self._kind, inputs, frozenset(self._whole), self._is_listed)

    def _word(self, word: str, wanted: list[tuple[str, bool, bool]]) -> None:
        match word:
            case "-shared" | "--shared" | "-Bshareable":
                self._kind = "shared"
            case "-r" | "-i" | "--relocatable" | "-Ur":
                self._kind = "object"
            case "--whole-archive" | "--no-whole-archive":
                self._is_whole = word == "--whole-archive"
            case "-static" | "-Bstatic" | "-dn" | "-non_shared" | "-static-pie":
                self._is_static = True
            case "-Bdynamic" | "-dy" | "-call_shared":
                self._is_static = False
            case _ if word.startswith("-L"):
                self._folders.append(self.command.path(word[2:].removeprefix("=")))
            case _ if word.startswith("-l") or not word.startswith("-"):
                wanted.append((word, self._is_whole, self._is_static))

    def _input(self, word: str, *, whole: bool, static: bool) -> None:
        path = self.sources.get(word) or (
            self._library(word[2:], static=static) if word.startswith("-l") else self.command.path(word)
        )
        if path is not None:
            self.inputs.append(path)
            if whole:
                self._whole.add(path)

    def _library(self, name: str, *, static: bool) -> Path | None:
        exact = name.startswith(":")
        endings = (".a",) if static else (".so", ".a")
        names = [name[1:]] if exact else [f"lib{name}{ending}" for ending in endings]
        candidates = (folder / one for folder in self._folders for one in names)
        return next((Path(os.path.realpath(path)) for path in candidates if path.exists()), None)


def _archived(command: BuildCommand) -> Iterator[Linked | Extracted]:
    """Read a command of ``ar``: additions make an archive, extractions make objects that are its members."""
    words = list(_without_options(command.arguments))
    if len(words) < 2:
        return
    operation, *rest = words
    operation = operation.lstrip("-")
    if re.search(r"[abi]", operation) and not re.search(r"[qx]", operation):
        rest = rest[1:]
    if re.search(r"[rq]", operation) and rest:
        yield Linked(
            command.path(rest[0]), "archive", tuple(command.path(word) for word in _members(command, rest[1:]))
        )
    elif "x" in operation and rest:
        yield Extracted(command.folder, command.path(rest[0]))


def _without_options(words: Sequence[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if word in _ARCHIVER_WITH_VALUE:
            next(rest, None)
        elif not word.startswith("--"):
            yield word


def _members(command: BuildCommand, words: Sequence[str]) -> Iterator[str]:
    for word in words:
        if word.startswith("@") and command.path(word[1:]).is_file():
            yield from read_response(command.path(word[1:]))
        else:
            yield word

"""From the commands of linkers to programs: which modules are in each executable, shared library and archive.

Of an archive on a linker's command line, the members that the program needs are taken, by their symbols, in any order
of the archives (as lld does; GNU ld takes the same ones or stops with an error). Where objects cannot be read any more,
all members are taken.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from policybridge_core.errors import InvalidError
from policybridge_train.corpus.linking import Extracted, Linked, Made
from policybridge_train.objects.bitcode import MAGIC, BitcodeSymbols
from policybridge_train.objects.elf import ObjectFile

_START = frozenset(("main",))

_SLIM: Final = "__gnu_lto_slim"
"""What gcc defines in an object of its own intermediate language, whose symbols stand elsewhere."""


@dataclass(frozen=True)
class Symbols:
    """Names that an object file defines, and those that it needs from others (weak ones need nobody)."""

    defined: frozenset[str]
    wanted: frozenset[str]


def read_symbols(path: Path) -> Symbols | None:
    """Read the symbols of an object file, also of bitcode; None where it has none that can be read."""
    try:
        data = path.read_bytes()
        if data.startswith(MAGIC):
            bitcode = BitcodeSymbols.of(data)
            return Symbols(bitcode.defined, bitcode.wanted)
        file = ObjectFile(data, str(path))
        found = Symbols(frozenset(file.globals()), frozenset(file.wanted))
        return None if _SLIM in found.defined or not file.has_symbols else found
    except (OSError, InvalidError):
        return None


class Programs:
    """The objects of each linked file, down to those that compilers wrote.

    Args:
        objects: the absolute path of each. Other objects (of assembler) are left out.

    """

    def __init__(self, objects: Iterable[Path]) -> None:
        self._objects = set(objects)
        self._made: dict[Path, Made] = {}
        self._listed: set[Path] = set()
        self._content: dict[Path, list[Path]] = {}
        self._symbols: Callable[[Path], Symbols | None] = cache(read_symbols)
        self._copies = _Copies(self._objects)

    def follow(self, links: Iterable[Linked | Extracted]) -> None:
        """Follow commands in their order."""
        for link in links:
            if isinstance(link, Extracted):
                self._extract(link)
            else:
                self._link(link)

    def __iter__(self) -> Iterator[tuple[Path, Made, list[Path]]]:
        """Give the path, kind and objects of each file that has any."""
        for path, objects in self._content.items():
            if objects and path in self._made:
                yield path, self._made[path], objects

    def exports_of(self, path: Path) -> tuple[str, ...] | None:
        """Give the names that a linked file shows to others; ``None`` where all that can be shown are, or nobody knows.

        A program shows what shared libraries look for in it.
        """
        if self._made[path] != "executable" and path not in self._listed:
            return None
        try:
            return tuple(ObjectFile.read(path).shown)
        except (OSError, InvalidError):
            return None

    def _extract(self, link: Extracted) -> None:
        for member in self._of(link.archive):
            self._content[link.folder / member.name] = [member]

    def _link(self, link: Linked) -> None:
        if link.kind == "archive":
            # `ar r` replaces the members of the same name and keeps the others.
            before = self._content.get(link.path, [])
            added = list(self._all(link.inputs))
            names = {path.name for path in added}
            content = [path for path in before if path.name not in names] + added
        else:
            content = list(self._needed(link))
        self._made[link.path] = link.kind
        (self._listed.add if link.is_listed else self._listed.discard)(link.path)
        self._content[link.path] = list(dict.fromkeys(content))
        self._copies.add(link.path)

    def _all(self, paths: Iterable[Path]) -> Iterator[Path]:
        for path in paths:
            yield from self._of(path)

    def _of(self, path: Path) -> Sequence[Path]:
        if path in self._objects:
            return (path,)
        known = path if path in self._content else self._copies.original(path)
        if known is None or self._made.get(known) in ("shared", "executable"):
            return ()
        return (known,) if known in self._objects else self._content[known]

    def _needed(self, link: Linked) -> list[Path]:
        lazy = [path for path in link.inputs if self._is_archive(path) and path not in link.whole]
        taken = [path for one in link.inputs if one not in lazy for path in self._of(one)]
        wanted = set(_START if link.kind == "executable" else ())
        return _resolve(taken, list(self._all(lazy)), wanted, self._symbols)

    def _is_archive(self, path: Path) -> bool:
        known = path if path in self._made else self._copies.original(path)
        return known is not None and self._made.get(known) == "archive"


def _resolve(
    taken: list[Path], lazy: Sequence[Path], wanted: set[str], symbols: Callable[[Path], Symbols | None]
) -> list[Path]:
    """Add the members of archives that define undefined symbols, until nothing changes."""
    all_symbols = {path: symbols(path) for path in (*taken, *lazy)}
    if any(found is None for found in all_symbols.values()):
        return [*taken, *lazy]
    known = {path: found for path, found in all_symbols.items() if found is not None}
    definers = _definers(lazy, known)
    result = dict.fromkeys(taken)
    defined = {name for path in taken for name in known[path].defined}
    # Sorted, because the order of a set is another one in each process, and so would be that of a program's modules.
    queue = sorted({*(name for path in taken for name in known[path].wanted), *wanted})
    while queue:
        name = queue.pop()
        if name not in defined and (member := definers.get(name)) is not None:
            result[member] = None
            defined |= known[member].defined
            queue.extend(sorted(known[member].wanted))
    return list(result)


def _definers(lazy: Sequence[Path], known: Mapping[Path, Symbols]) -> dict[str, Path]:
    definers: dict[str, Path] = {}
    for path in lazy:
        for name in known[path].defined:
            definers.setdefault(name, path)
    return definers


class _Copies:
    """Objects and archives that a build copied or renamed, by their content."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._by_size: dict[int, list[Path]] = defaultdict(list)
        self._gone: dict[str, list[Path]] = defaultdict(list)
        for path in paths:
            self.add(path)

    def add(self, path: Path) -> None:
        """Make a file known."""
        size = _size(path)
        if size:
            self._by_size[size].append(path)
        elif not path.exists():
            self._gone[path.stem].append(path)

    def original(self, path: Path) -> Path | None:
        """Give the known file that was renamed to this one, or has the same content."""
        renamed = self._gone.get(path.stem, ())
        if len(renamed) == 1 and path.exists():
            return renamed[0]
        size = _size(path)
        candidates = self._by_size.get(size, ()) if size else ()
        return next((one for one in candidates if one == path or _digest(one) == _digest(path)), None)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


@cache
def _digest(path: Path) -> bytes:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        # Never equal to another file's.
        return bytes(path)

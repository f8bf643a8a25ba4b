"""``policybridge corpus add``: modules that a compiler, a linker or another corpus has made already."""

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError
from policybridge_train.compiling.module import Module
from policybridge_train.corpus.bitcode import Unit
from policybridge_train.corpus.description import DESCRIPTION, Corpus
from policybridge_train.corpus.embedded import read_embedded
from policybridge_train.corpus.invocation import parse_compiler
from policybridge_train.corpus.notes import BuildCommand, build_command, expanded
from policybridge_train.corpus.writing import CorpusWriter, module_name

_IMPORTED: Final = ".3.import.bc"
"""lld's name for a module after ThinLTO's import and before its pipeline (lld and llvm/lib/LTO/LTOBackend.cpp)."""
_INDEX: Final = ".thinlto.bc"
_OBJECTS: Final = (".o", ".obj")
_UNSPECIFIED: Final = "<UNSPECIFIED>"
"""mlgo-utils' word for arguments that its user is to give."""


@dataclass(frozen=True)
class Added:
    """Where modules are added, under which names.

    Attributes:
        writer: of the corpus.
        project: the project's name.
        root: names are paths below it.
        level: of optimisation, for modules that come without arguments.

    """

    writer: CorpusWriter
    project: str
    root: Path
    level: str

    def objects(self, path: Path) -> int:
        """Add an object, ThinLTO's temporary file, or all of them below a folder; give how many.

        Raises:
            NotFoundError: there is none.

        """
        found = [path]
        if path.is_dir():
            # Beside ThinLTO's files lie objects that are made of them.
            found = sorted(self._below(path, (_IMPORTED,))) or sorted(self._below(path, _OBJECTS))
        added = sum(self._one(file) for file in found)
        if not found:
            raise NotFoundError(f"{path} holds neither objects (*.o) nor ThinLTO's temporary files (*{_IMPORTED})")
        return added

    def corpus(self, folder: Path) -> int:
        """Add the modules and programs of another corpus; give how many modules.

        Raises:
            NotFoundError: there is no corpus.
            InvalidError: it cannot be read.

        """
        corpus = Corpus.open(folder)
        names = {module.name: name for module in corpus.modules if (name := self._copy(module))}
        self.writer.link(
            replace(program, modules=tuple(names[one] for one in program.modules if one in names))
            for program in corpus.programs
        )
        return len(names)

    @staticmethod
    def _below(folder: Path, endings: tuple[str, ...]) -> Iterator[Path]:
        for parent, _, files in os.walk(folder):
            yield from (Path(parent, file) for file in files if file.endswith(endings))

    def _one(self, file: Path) -> bool:
        name = self._name(file)
        try:
            if file.name.endswith(_IMPORTED):
                self._thinlto(name, file)
            else:
                self._object(name, file)
        except (PolicyBridgeError, OSError) as error:
            self.writer.fail(name, str(error))
            return False
        return True

    def _object(self, name: str, file: Path) -> None:
        embedded = read_embedded(file)
        bitcode = self.writer.temporary(name)
        bitcode.write_bytes(embedded.bitcode)
        index = _index_of(embedded.arguments, file)
        added = self.writer.add(self._module(name, embedded.arguments), bitcode)
        if index is not None:
            self.writer.add_index(added, index)

    def _thinlto(self, name: str, file: Path) -> None:
        index = file.with_name(file.name.removesuffix(_IMPORTED) + _INDEX)
        if not index.is_file():
            raise NotFoundError(f"{index} is missing: lld writes it with --thinlto-emit-index-files beside {file.name}")
        bitcode = self.writer.temporary(name)
        shutil.copyfile(file, bitcode)
        self.writer.add_index(self.writer.add(self._module(name, _assumed(self.level)), bitcode), index)

    def _copy(self, module: Module) -> str | None:
        try:
            bitcode = self.writer.temporary(module.name)
            shutil.copyfile(module.bitcode, bitcode)
            if module.profile is not None:
                self.writer.keep_profile(module.profile)
            known = tuple(word for word in module.arguments if word != _UNSPECIFIED)
            name = self.writer.add(replace(module, arguments=known or _assumed(self.level)), bitcode)
            if module.index.exists():
                self.writer.add_index(name, module.index)
        except (PolicyBridgeError, OSError) as error:
            self.writer.fail(module.name, str(error))
            return None
        return name

    def _module(self, name: str, arguments: tuple[str, ...]) -> Module:
        source = _main_file(arguments)
        return Module(name, Path(), arguments, self.project, source or name)

    def _name(self, file: Path) -> str:
        path = Path(str(file).removesuffix(_IMPORTED)).resolve()
        return module_name(self.project, os.path.relpath(path, self.root))


def read_compile_commands(file: Path) -> list[BuildCommand]:
    """Read a ``compile_commands.json`` (clang/docs/JSONCompilationDatabase.rst).

    Raises:
        InvalidError: it is none.

    """
    try:
        rows = json.loads(os.fsdecode(file.read_bytes()))
    except ValueError as error:
        raise InvalidError(f"{file} is no JSON: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidError(f"{file} is no compilation database: that is a list of objects")
    return [command for row in rows if (command := _command(row, file)) is not None]


def missing_sources(commands: list[BuildCommand]) -> Iterator[Unit]:
    """Give the units whose source is not there."""
    for command in commands:
        invocation = parse_compiler(command)
        for source in invocation.sources if invocation else ():
            unit = Unit(invocation, source)  # type: ignore[arg-type]
            if not unit.path.is_file():
                yield unit


def is_corpus(path: Path) -> bool:
    """Tell whether a path is a corpus, or its description."""
    return (path / DESCRIPTION).is_file() or path.name == DESCRIPTION


def _command(row: Mapping[str, Any], file: Path) -> BuildCommand | None:
    words = row.get("arguments")
    command = row.get("command")
    folder = row.get("directory")
    if not isinstance(folder, str) or not (isinstance(words, list) or isinstance(command, str)):
        raise InvalidError(f"{file}: an entry needs 'directory', and 'arguments' or 'command'; one is {row!r:.200}")
    try:
        words = words if isinstance(words, list) else shlex.split(str(command))
    except ValueError as error:
        raise InvalidError(f"{file}: {error} in the command {command!r:.200}") from error
    parent = Path(os.path.realpath(file.parent / folder))
    return build_command(parent, list(expanded(map(str, words), parent)))


def _assumed(level: str) -> tuple[str, ...]:
    """Give arguments for a module that comes without: its triple and its functions' attributes are in the bitcode."""
    return ("-cc1", "-emit-obj", "-mrelocation-model", "pic", "-pic-level", "2", "-pic-is-pie", f"-{level}")


def _index_of(arguments: tuple[str, ...], file: Path) -> Path | None:
    """Find the index that an object of distributed ThinLTO was compiled with."""
    named = [word.partition("=")[2] for word in arguments if word.startswith("-fthinlto-index=")]
    if not named:
        return None
    found = [path for path in (Path.cwd() / named[0], file.parent / named[0]) if path.is_file()]
    if not found:
        raise NotFoundError(f"the index {named[0]} of {file} is missing")
    return found[0]


def _main_file(arguments: tuple[str, ...]) -> str:
    return next((after for word, after in pairwise(arguments) if word == "-main-file-name"), "")

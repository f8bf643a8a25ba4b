"""The floors of the packages, read from their drawing in tests/floors.txt, and every import of the code.

The drawing has lines from the top floor down. A line at the margin names a package by its path; each line
indented below it is one floor of that package, and names the modules and sub-packages that stand there, with commas
between. Two spaces end the names; a description follows. A package without such lines is one floor.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from itertools import chain, pairwise
from pathlib import Path
from typing import Final, NamedTuple

DRAWING: Final = Path("tests/floors.txt")

ROOTS: Final = ("proto", "core", "serdes", "server", "clients/python", "training", "demo", "bench")

APART: Final = {("policybridge_client", "policybridge_server")}
"""A compiler machine has the client without the server, so no import joins them."""

FACE: Final = "__init__"
"""The module of a package that hands its names on. It stands above the package's floors, so none of them imports it."""


class Module(NamedTuple):
    """A module: its name, the package that its relative imports start from, and its file."""

    name: str
    package: str
    file: Path


class Import(NamedTuple):
    """An import of ``target`` in the module ``importing``, on a line of its file."""

    importing: Module
    line: int
    target: str


class House:
    """The code of a repository: its modules, their imports, and the floors that the drawing gives them.

    Args:
        repository: its folder.
        drawing: the file with the drawing.

    Attributes:
        floors: the packages and modules of each floor, from the ground up.
        modules: every module by its name, without the stubs that protoc makes.

    """

    def __init__(self, repository: Path, drawing: Path) -> None:
        self._repository = repository
        self.floors = read_floors(drawing.read_text())
        self._floor_of = {name: number for number, names in enumerate(self.floors) for name in names}
        self.modules = {module.name: module for module in _modules(repository, self._faces())}

    def _faces(self) -> set[str]:
        return {name.removesuffix(f".{FACE}") for name in self._floor_of if name.endswith(f".{FACE}")}

    def violations(self) -> list[str]:
        """Say which imports the floors forbid, and which modules stand on none."""
        homeless = [module for module in self.modules.values() if self._stand(module.name) is None]
        texts = [f"{self._path(module)}: {module.name} stands on no floor" for module in homeless]
        return texts + [
            f"{self._path(each.importing)}:{each.line}: {why}"
            for each in self.imports()
            if (why := self._violation(each))
        ]

    def circle(self) -> list[str]:
        """Give modules of which each imports the next, and the last is the first; empty if there are none."""
        sorter: TopologicalSorter[str] = TopologicalSorter()
        for each in self.imports():
            if each.target in self.modules:
                sorter.add(each.importing.name, each.target)
        try:
            sorter.prepare()
        except CycleError as error:
            return list(reversed(error.args[1]))
        return []

    def imports(self) -> Iterator[Import]:
        """Give every import of the repository's own code, at the top of a module or in a function."""
        for module in self.modules.values():
            for line, target in _targets(module.file.read_text(), module.package):
                if target.startswith(("policybridge.", "policybridge_")):
                    yield Import(module, line, self._resolved(target))

    def _resolved(self, target: str) -> str:
        """Give the module that an import names: ``from package import name`` may name a module or what one defines."""
        name = target
        while name and name not in self.modules and name not in self._floor_of:
            face = f"{name}.{FACE}"
            if face in self._floor_of:
                return face
            name = name.rpartition(".")[0]
        return name or target

    def _stand(self, name: str) -> str | None:
        """Give the package or module of the drawing that a module belongs to."""
        while name and name not in self._floor_of:
            name = name.rpartition(".")[0]
        return name or None

    def _violation(self, each: Import) -> str | None:
        importing, imported = self._stand(each.importing.name), self._stand(each.target)
        if imported is None:
            return f"{each.target} stands on no floor"
        if importing is None or importing == imported:
            return None
        if _is_apart(importing, imported):
            return f"{importing} imports {imported}, which stands apart from it"
        above = self._floor_of[imported] - self._floor_of[importing]
        if above < 0:
            return None
        return f"{importing} imports {imported}, which stands {'above' if above else 'beside'} it"

    def _path(self, module: Module) -> Path:
        return module.file.relative_to(self._repository)


def read_floors(drawing: str) -> list[tuple[str, ...]]:
    """Read the drawing; give the names of each floor, from the ground up."""
    floors: list[tuple[str, ...]] = []
    package = ""
    lines = drawing.splitlines()
    for line, below in pairwise([*lines, ""]):
        names = re.split(r"\s{2,}", line.strip())[0].split(", ")
        if line.startswith(" "):
            floors.append(tuple(f"{package}.{name}" for name in names))
            continue
        (path,) = names
        package = path.rpartition("/")[2]
        floors.append((f"{package}.{FACE}" if below.startswith(" ") else package,))
    return floors[::-1]


def _is_apart(importing: str, imported: str) -> bool:
    return (importing.partition(".")[0], imported.partition(".")[0]) in APART


def _modules(repository: Path, faces: set[str]) -> Iterator[Module]:
    for root in ROOTS:
        for file in sorted((repository / root).rglob("*.py")):
            *package, stem = file.relative_to(repository / root).with_suffix("").parts
            if package and not stem.endswith(("_pb2", "_pb2_grpc")):
                parts = package if stem == FACE and ".".join(package) not in faces else [*package, stem]
                yield Module(".".join(parts), ".".join(package), file)


@cache
def _targets(source: str, package: str) -> list[tuple[int, str]]:
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return list(chain.from_iterable(((node.lineno, name) for name in _names(node, package)) for node in nodes))


def _names(node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    source = resolve_name("." * node.level + (node.module or ""), package)
    return [f"{source}.{alias.name}" for alias in node.names]

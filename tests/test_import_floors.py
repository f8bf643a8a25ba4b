"""Every package stands on a floor and imports only what stands below it."""

import ast
import shutil
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Final, NamedTuple

import pytest

REPOSITORY: Final = Path(__file__).parents[1]
ROOTS: Final = ("proto", "core", "serdes", "server", "clients/python", "training", "demo", "bench")

# From the ground up. What stands on one floor does not import its neighbour.
FLOORS: Final = (
    ("policybridge",),
    ("policybridge_core",),
    ("policybridge_serdes",),
    ("policybridge_server.telemetry.counters",),
    (
        "policybridge_server.bounded",
        "policybridge_server.bundled",
        "policybridge_server.config",
        "policybridge_server.ending",
        "policybridge_server.loop",
        "policybridge_server.systemd",
    ),
    ("policybridge_server.log",),
    ("policybridge_server.output",),
    ("policybridge_server.access", "policybridge_server.repository"),
    ("policybridge_server.backends",),
    ("policybridge_server.engine",),
    ("policybridge_server.ledger", "policybridge_server.publishing"),
    ("policybridge_server.following", "policybridge_server.rollouts"),
    ("policybridge_server.transports",),
    ("policybridge_server.telemetry",),
    ("policybridge_server.grpc", "policybridge_server.page"),
    ("policybridge_server.open_inference", "policybridge_server.mlbridge"),
    ("policybridge_server.reloading",),
    ("policybridge_server.serving", "policybridge_server.embedded"),
    ("policybridge_server.daemon",),
    ("policybridge_server.workers",),
    ("policybridge_server.cli",),
    ("policybridge_client",),
    (
        "policybridge_train.command_line",
        "policybridge_train.objects",
        "policybridge_train.onnx_file",
        "policybridge_train.processes",
    ),
    ("policybridge_train.farms",),
    ("policybridge_train.compiling",),
    ("policybridge_train.corpus",),
    ("policybridge_train.scoring", "policybridge_train.tasks"),
    ("policybridge_train.environments", "policybridge_train.trajectories"),
    ("policybridge_train.learning", "policybridge_train.tuning"),
    ("policybridge_train.algorithms", "policybridge_train.embedding", "policybridge_train.report"),
    ("policybridge_train.train_command",),
    ("policybridge_demo",),
    ("policybridge_bench",),
)
# Packages whose parts stand on floors of their own; the package itself imports nothing.
DIVIDED: Final = {"policybridge_server", "policybridge_train"}
# A compiler machine has the client without the server, so that no import may join them.
APART: Final = {("policybridge_client", "policybridge_server")}


class Module(NamedTuple):
    """A module of ours: its name, the package that its relative imports start from, and its file."""

    name: str
    package: str
    file: Path


class Import(NamedTuple):
    """An import of ``target`` in the module ``importing``, on a line of its file."""

    importing: Module
    line: int
    target: str


def modules(repository: Path) -> Iterator[Module]:
    """Give every module, without the stubs that protoc makes, which import nothing of ours."""
    for root in ROOTS:
        for file in sorted((repository / root).rglob("*.py")):
            *package, stem = file.relative_to(repository / root).with_suffix("").parts
            if package and not stem.endswith(("_pb2", "_pb2_grpc")):
                parts = package if stem == "__init__" else [*package, stem]
                yield Module(".".join(parts), ".".join(package), file)


def imports(module: Module) -> Iterator[Import]:
    """Give what a module imports of ours, at its top or in a function."""
    for line, target in _found(module.file.read_text(), module.package):
        if target.startswith(("policybridge.", "policybridge_")):
            yield Import(module, line, target)


@cache
def _found(source: str, package: str) -> list[tuple[int, str]]:
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return [(node.lineno, target) for node in nodes for target in _targets(node, package)]


def _targets(node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    source = resolve_name("." * node.level + (node.module or ""), package)
    # `from package import module` imports the module, so that the longest name counts.
    return [f"{source}.{alias.name}" for alias in node.names]


def floor(name: str) -> tuple[int, str] | None:
    """Give the floor of a module and the package that stands there."""
    for number, packages in enumerate(FLOORS):
        for package in packages:
            if name == package or name.startswith(f"{package}."):
                return number, package
    return None


def violations(repository: Path) -> list[str]:
    """Say which imports the floors forbid, and which modules stand on none."""
    found = []
    for module in modules(repository):
        where = module.file.relative_to(repository)
        if floor(module.name) is None and module.name not in DIVIDED:
            found.append(f"{where}: {module.name} stands on no floor")
        else:
            found += [f"{where}:{each.line}: {why}" for each in imports(module) if (why := _violation(each))]
    return found


def _violation(found: Import) -> str | None:
    importing, imported = floor(found.importing.name), floor(found.target)
    if importing is None or imported is None:
        return f"{found.target} stands on no floor"
    if importing == imported or (importing[0] > imported[0] and not _apart(importing[1], imported[1])):
        return None
    how = "above it" if importing[0] < imported[0] else "beside it" if importing[0] == imported[0] else "apart from it"
    return f"{importing[1]} imports {imported[1]}, which stands {how}"


def _apart(importing: str, imported: str) -> bool:
    return (importing.partition(".")[0], imported.partition(".")[0]) in APART


def test_no_package_imports_one_above_it_or_beside_it() -> None:
    assert violations(REPOSITORY) == []


@pytest.mark.parametrize(
    ("file", "line", "said"),
    [
        (
            "server/policybridge_server/repository/files.py",
            "import policybridge_server.grpc.transport",
            "policybridge_server.repository imports policybridge_server.grpc, which stands above it",
        ),
        (
            "core/policybridge_core/text.py",
            "def late() -> None:\n    from policybridge_serdes import specs",
            "policybridge_core imports policybridge_serdes, which stands above it",
        ),
        (
            "server/policybridge_server/publishing/intake.py",
            "from policybridge_server import ledger",
            "policybridge_server.publishing imports policybridge_server.ledger, which stands beside it",
        ),
        (
            "training/policybridge_train/compiling/job.py",
            "from policybridge_train.corpus import description",
            "policybridge_train.compiling imports policybridge_train.corpus, which stands above it",
        ),
        (
            "training/policybridge_train/learning/record.py",
            "def late() -> None:\n    from policybridge_train.tuning.search import Search",
            "policybridge_train.learning imports policybridge_train.tuning, which stands beside it",
        ),
        (
            "training/policybridge_train/processes/pool.py",
            "from ..farms import contract",
            "policybridge_train.processes imports policybridge_train.farms, which stands above it",
        ),
        (
            "training/policybridge_train/attic/__init__.py",
            "import policybridge_core",
            "policybridge_train.attic stands on no floor",
        ),
        (
            "clients/python/policybridge_client/runner.py",
            "from policybridge_server.config import ServerConfig",
            "policybridge_client imports policybridge_server.config, which stands apart from it",
        ),
        (
            "server/policybridge_server/config.py",
            "from .transports import contract",
            "policybridge_server.config imports policybridge_server.transports, which stands above it",
        ),
        (
            "server/policybridge_server/attic/__init__.py",
            "import policybridge_core",
            "policybridge_server.attic stands on no floor",
        ),
    ],
    ids=[
        *("above", "above, in a function", "beside"),
        *("above, in training", "beside, in training", "relative, in training", "on no floor, in training"),
        *("apart", "relative", "on no floor"),
    ],
)
def test_an_import_that_the_floors_forbid_is_found(tmp_path: Path, file: str, line: str, said: str) -> None:
    (root,) = (root for root in ROOTS if file.startswith(f"{root}/"))
    shutil.copytree(REPOSITORY / root, tmp_path / root, ignore=shutil.ignore_patterns("__pycache__"))
    changed = tmp_path / file
    changed.parent.mkdir(exist_ok=True)
    with changed.open("a") as source:
        source.write(f"\n{line}\n")
    (found,) = violations(tmp_path)
    assert found.startswith(f"{file}:")
    assert found.endswith(said)

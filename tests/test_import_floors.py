"""Every package stands on a floor and imports only packages below it; tests/floors.txt draws the floors."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.floors import DRAWING, ROOTS, House

REPOSITORY: Final = Path(__file__).parents[1]

WHOLE: Final = House(REPOSITORY, REPOSITORY / DRAWING)


def test_no_package_imports_one_above_it_or_beside_it() -> None:
    assert WHOLE.violations() == []


def test_no_module_imports_itself_through_others() -> None:
    assert WHOLE.circle() == []


def test_the_drawing_names_every_package_and_module_once_and_nothing_else() -> None:
    drawn = [name for floor in WHOLE.floors for name in floor]
    there = {package for module in WHOLE.modules for package in _packages(module)}
    assert [name for name, count in Counter(drawn).items() if count > 1] == []
    assert [name for name in drawn if name not in there] == []


def _packages(module: str) -> list[str]:
    """Give the packages that a module is in, and the module."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


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
            "training/policybridge_train/processes/process.py",
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
            "policybridge_client.runner imports policybridge_server.config, which stands apart from it",
        ),
        (
            "server/policybridge_server/config.py",
            "from .transports import contract",
            "policybridge_server.config imports policybridge_server.transports, which stands above it",
        ),
        (
            "clients/python/policybridge_client/contract.py",
            "from policybridge_client.connection import CONNECTIONS",
            "policybridge_client.contract imports policybridge_client.connection, which stands above it",
        ),
        (
            "clients/python/policybridge_client/llvm/host.py",
            "from policybridge_client import connect",
            "policybridge_client.llvm imports policybridge_client.__init__, which stands above it",
        ),
        (
            "clients/python/policybridge_client/llvm/host.py",
            "import policybridge_client.policies",
            "policybridge_client.llvm imports policybridge_client.policies, which stands beside it",
        ),
        (
            "bench/policybridge_bench/results.py",
            "from policybridge_bench import measuring",
            "policybridge_bench.results imports policybridge_bench.measuring, which stands above it",
        ),
        (
            "demo/policybridge_demo/corpus.py",
            "from policybridge_demo import report",
            "policybridge_demo.corpus imports policybridge_demo.report, which stands above it",
        ),
        (
            "server/policybridge_server/attic/__init__.py",
            "import policybridge_core",
            "policybridge_server.attic stands on no floor",
        ),
        (
            "clients/python/policybridge_client/attic.py",
            "import policybridge_core",
            "policybridge_client.attic stands on no floor",
        ),
    ],
    ids=[
        "above",
        "above, in a function",
        "beside",
        "above, in training",
        "beside, in training",
        "relative, in training",
        "on no floor, in training",
        "apart",
        "relative",
        "a module above",
        "the face",
        "a module beside",
        "above, in the bench",
        "above, in the demo",
        "on no floor",
        "a module on no floor",
    ],
)
def test_an_import_that_the_floors_forbid_is_found(tmp_path: Path, file: str, line: str, said: str) -> None:
    (violation,) = _changed(tmp_path, file, line).violations()
    assert violation.startswith(f"{file}:")
    assert violation.endswith(said)


def test_a_circle_of_modules_is_found(tmp_path: Path) -> None:
    changed = _changed(tmp_path, "server/policybridge_server/counters.py", "from policybridge_server import loop")
    assert set(changed.circle()) == {"policybridge_server.counters", "policybridge_server.loop"}


def _changed(folder: Path, file: str, line: str) -> House:
    """Give the code with one more line in one file, beside the packages of its root alone."""
    (root,) = (root for root in ROOTS if file.startswith(f"{root}/"))
    shutil.copytree(REPOSITORY / root, folder / root, ignore=shutil.ignore_patterns("__pycache__"))
    changed = folder / file
    changed.parent.mkdir(exist_ok=True)
    with changed.open("a") as source:
        source.write(f"\n{line}\n")
    return House(folder, REPOSITORY / DRAWING)

"""The plugin in stock mlir-opt, and a server with policies for it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from policybridge_train.learning.choosing import Costs, Decisions, config, to_onnx
from policybridge_train.learning.trees import TreeSettings
from policybridge_train.tasks.tiling import Tiling
from tests.conftest import RunningServer, running_server
from tests.native.conftest import MLIR_MAJOR, Target, missing
from tests.native.llvm.plugins import need
from tests.repositories import answering, dying, write_python


@dataclass(frozen=True)
class Optimised:
    """The result of mlir-opt."""

    status: int
    text: str
    said: str


@dataclass(frozen=True)
class Plugin:
    """The plugin, and the server that it asks.

    Attributes:
        path: the shared object.
        server: its address.
        ledger: the server's.

    """

    path: Path
    server: str
    ledger: Path

    def tile(self, module: Path, policy: str = "echo", options: str = "", **settings: str) -> Optimised:
        """Run the pass; ``stats="x"`` is POLICYBRIDGE_STATS."""
        named = {"server": self.server, "policy": policy, **settings}
        variables = {f"POLICYBRIDGE_{name.upper()}": value for name, value in named.items()}
        pass_ = f"builtin.module(policybridge-tile{{{options}}})"
        return run_mlir([f"--load-pass-plugin={self.path}", f"--pass-pipeline={pass_}", str(module)], variables)


def run_mlir(words: list[str], variables: dict[str, str] | None = None) -> Optimised:
    """Run mlir-opt."""
    command = [need(f"mlir-opt-{MLIR_MAJOR}"), *words]
    done = subprocess.run(command, env={**os.environ, **(variables or {})}, capture_output=True, check=False)
    return Optimised(done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode())


_USUAL = """
import numpy as np


class Policy:
    def evaluate(self, observation, session):
        return (np.arange(7) == observation["default"]).astype(np.float32)
"""
_HEAD = 'advice = {name = "scores", type = "float", shape = [7]}\n[head]\nadvice = "tile"\n'


def write_trees(repository: Path) -> None:
    """Add a policy of trees, which advises larger sizes for longer loops."""
    chance = np.random.default_rng(0)
    columns, count = sum(spec.count for spec in Tiling.features), 600
    rows = chance.integers(0, 128, (count, columns)).astype(np.float32)
    choices = chance.integers(0, 7, count)
    extent = rows[:, [spec.name for spec in Tiling.features].index("extent")]
    costs = (np.abs(16 * choices - extent) / 16 - 3).astype(np.float32)
    tried = Decisions(rows, choices, costs, np.ones(count, bool))
    made = Costs.fitted(tried, 7, TreeSettings(trees=20, leaves=15, least=5))
    folder = repository / "trees" / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(to_onnx(made, 6, 0.01))
    (repository / "trees" / "policy.toml").write_text(
        config(Tiling.features, Tiling.advice, "larger tiles for longer loops")
    )


@pytest.fixture(scope="package")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "echo", answering('observation["default"]'))
    write_python(repository, "eights", answering("2"))
    write_python(repository, "wild", answering("17"))
    write_python(repository, "negative", answering("-1"))
    write_python(repository, "failing", answering("observation['no such feature']"))
    write_python(repository, "dying", dying('observation["default"]', after=9))
    write_python(repository, "usual", _USUAL, _HEAD)
    write_trees(repository)
    shutil.copytree(repository / "trees", repository / "old-trees")
    with (repository / "old-trees" / "policy.toml").open("a") as toml:
        toml.write('\n[scope]\nllvm = ["5", "6"]\n')
    return repository


@pytest.fixture(scope="package")
def served(repository: Path) -> Iterator[tuple[RunningServer, Path]]:
    with TemporaryDirectory(prefix="pb-") as folder:
        ledger = Path(folder) / "ledger.db"
        with running_server(repository, Path(folder), "--ledger", ledger) as running:
            yield running, ledger


@pytest.fixture(scope="session")
def library(native: Target) -> Path:
    """Build the plugin, once for all tests: MLIR's headers take their time."""
    if not Path(f"/usr/lib/llvm-{MLIR_MAJOR}/include/mlir").is_dir():
        missing(f"libmlir-{MLIR_MAJOR}-dev")
    target = f"policybridge-mlir-{MLIR_MAJOR}"
    return native(target) / "lib" / f"{target}.so"


@pytest.fixture
def plugin(library: Path, served: tuple[RunningServer, Path]) -> Plugin:
    return Plugin(library, served[0].socket, served[1])

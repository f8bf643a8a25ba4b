"""Compile modules by policies that the server evaluates, and by their forms in the compiler: all must be the same.

    python -m tests.measures.same_here [--modules N] [--jobs J] [--only NAME]

Modules are C and C++ files of the wheel ``ziglang``. The policies are the bundled trees (``size``, ``inliner``) and a
dense network, with exploration and without. Objects, observations, advices, log-probabilities, contexts are compared.
Needs cmake, ninja, g++, clang-22 and LLVM's headers. The exit status is 1 if an object or an advice is another one.
"""

import argparse
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from policybridge_client.llvm.inliner import INLINING_DEFAULT
from policybridge_demo.corpus import demo_modules
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch
from policybridge_server.repository import BUNDLED
from policybridge_train.learning.network import Layer, Network, Scaling
from policybridge_train.tasks.inline import NUMBERS
from tests.conftest import RunningServer, running_server
from tests.native.conftest import built
from tests.native.llvm.plugins import emit_demo
from tests.native.llvm.stores import Made, Tuner
from tests.server.ledger.asking import await_forms

MAJOR: Final = "22"
_MORE: Final = Path(__file__).with_name("imitation_modules.txt")

CASES: Final = {
    "size": ("size", ""),
    "inliner": ("inliner", ""),
    "dense": ("dense", ""),
    "size explored": ("size-drawn", "epsilon=0.3,seed=7"),
    "passes explored": ("passes-drawn", "temperature=2,epsilon=0.05,seed=8"),
    "dense explored": ("dense", "temperature=1,epsilon=0.05,seed=9"),
}
"""What is compared: by its name a policy, and how it explores."""

DIFFERENCES: Final = ("objects", "observations", "contexts", "advices", "log-probabilities")


@dataclass
class Compared:
    """The comparison of one case over some modules; `differing` counts modules, and of log-probabilities decisions."""

    modules: int
    decisions: int
    differing: Counter[str]

    def __str__(self) -> str:
        said = ", ".join(f"{name} {self.differing[name]}" for name in DIFFERENCES)
        return f"{self.modules} modules, {self.decisions} decisions, differing: {said}"


def modules(count: int) -> list[str]:
    """Give paths of C and C++ files, both from the beginning."""
    paths = [each.path for each in demo_modules()] + _MORE.read_text().splitlines()
    by_language = [[each for each in paths if each.endswith(".c") is is_c] for is_c in (True, False)]
    shortest = min(map(len, by_language))
    mixed = [each for pair in zip(*by_language, strict=False) for each in pair]
    return [*mixed, *(each for language in by_language for each in language[shortest:])][:count]


def write_policies(repository: Path) -> None:
    """Add the bundled trees, those with heads to explore by, and a dense network of random weights."""
    for name in ("size", "inliner"):
        shutil.copytree(BUNDLED / name, repository / name)
    head = '\n[kinds.{}.head]\nscores = "choice"\nchoices = 2\nadvice = "inlining_decision"\n'
    shutil.copytree(BUNDLED / "size", repository / "size-drawn")
    with (repository / "size-drawn" / "policy.toml").open("a") as file:
        file.write(head.format("inlining_decision"))
    _write_passes(repository / "passes-drawn")
    _write_dense(repository / "dense")


def _write_passes(folder: Path) -> None:
    """Add the bundled trees for passes alone, which have scores."""
    (folder / "1").mkdir(parents=True)
    shutil.copy(BUNDLED / "size" / "1" / "passes.onnx", folder / "1" / "passes.onnx")
    text = (BUNDLED / "size" / "policy.toml").read_text()
    kind = text[text.index("[kinds.pass_choice") :].replace("[kinds.pass_choice.", "[")
    kind = kind.replace("[kinds.pass_choice]\n", "")
    (folder / "policy.toml").write_text(f'backend = "onnx"\ndecides = ["pass_choice"]\n{kind}')


def _write_dense(folder: Path) -> None:
    random, names = np.random.default_rng(5), [*NUMBERS, INLINING_DEFAULT.name]
    sizes = [len(names), 32, 16, 1]
    layers = [
        Layer(
            (random.normal(size=(1, width, height)) * 1.5 / np.sqrt(width)).astype(np.float32),
            random.normal(size=(1, 1, height)).astype(np.float32) / 4,
        )
        for width, height in pairwise(sizes)
    ]
    scaling = Scaling(np.full(len(names), 1.5, np.float32), np.full(len(names), 1.7, np.float32))
    network = Network(names, INLINING_DEFAULT.name, 1.0, scaling, layers)
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.onnx").write_bytes(network.to_onnx())
    features = ", ".join(f'"{name}"' for name in names)
    (folder / "policy.toml").write_text(
        'backend = "onnx"\n[head]\nadvice = "inlining_decision"\n'
        f"[settings.pack.observation]\nfeatures = [{features}]\n"
    )


@contextmanager
def serving(folder: Path) -> Iterator[RunningServer]:
    """Serve the policies with a ledger, and wait until their forms are made."""
    write_policies(folder / "policies")
    with running_server(folder / "policies", folder, "--ledger", folder / "ledger.db") as server:
        for policy in {policy for policy, _ in CASES.values()}:
            await_forms(server.socket, policy)
        yield server


def compare(
    tuner: Tuner, server: RunningServer, paths: Sequence[str], cases: Iterable[str] = CASES, jobs: int = 1
) -> dict[str, Compared]:
    """Compile the modules in both ways; give what differs in each case."""
    found = {case: Compared(0, 0, Counter()) for case in cases}

    def compared(path: str) -> dict[str, tuple[int, Counter[str]]]:
        with TemporaryDirectory(dir=tuner.folder) as name:
            module = emit_demo(MAJOR, path, Path(name))
            return {case: _compare_module(tuner, server, case, module) for case in found}

    with ThreadPoolExecutor(jobs) as pool:
        for path, of_cases in zip(paths, pool.map(compared, paths), strict=True):
            for case, (decisions, differing) in of_cases.items():
                if differing:
                    print(f"{path} by {case}: {dict(differing)}", flush=True)
                found[case].modules += 1
                found[case].decisions += decisions
                found[case].differing += differing
    return found


def _compare_module(tuner: Tuner, server: RunningServer, case: str, module: Path) -> tuple[int, Counter[str]]:
    made = []
    for evaluate in ("there", "here"):
        folder = module.parent / case / evaluate
        folder.mkdir(parents=True)
        made.append(_compiled(Tuner(MAJOR, tuner.path, folder), server, case, evaluate, module))
    failed = [each for each in made if each.status]
    if failed:
        raise RuntimeError(f"{module.name} by {case}: {failed[0].said}")
    there, here = (_recorded(server, each) for each in made)
    differing = Counter(objects=made[0].output != made[1].output)
    return _differing(there, here, differing)


def _differing(
    there: list[DecisionBatch], here: list[DecisionBatch], differing: Counter[str]
) -> tuple[int, Counter[str]]:
    """Compare the records of both ways."""
    if [each.signature for each in there] != [each.signature for each in here]:
        differing["observations"] += 1
        return 0, differing
    for one, other in zip(there, here, strict=True):
        differing["observations"] += one.observations.tobytes() != other.observations.tobytes()
        differing["contexts"] += one.contexts.tolist() != other.contexts.tolist()
        differing["advices"] += one.advices.tobytes() != other.advices.tobytes()
        if len(one.steps) == len(other.steps):
            bits = (each.log_probabilities.view(np.int64) for each in (one, other))
            differing["log-probabilities"] += int(np.not_equal(*bits).sum())
    return sum(len(each.steps) for each in there), +differing


def _compiled(tuner: Tuner, server: RunningServer, case: str, evaluate: str, module: Path) -> Made:
    policy, explored = CASES[case]
    settings = {"policy": policy, "evaluate": evaluate, "fallback": "error", "timeout": "120"}
    if explored:
        settings["explore"] = explored
    return tuner.compile(module, "-x", "ir", "-Oz", server=server.socket, **settings)


def _recorded(server: RunningServer, made: Made) -> list[DecisionBatch]:
    if not (made.folder / "stats.json").exists():
        return []
    sessions = json.loads((made.folder / "stats.json").read_text())["sessions"]
    with LedgerReader(Path(server.socket.removeprefix("socket:")).parent / "ledger.db") as reader:
        return [batch for each in sessions for batch in reader.trajectory(reader.session(each)).batches]


def main() -> int:
    """Compile, and print the counts of each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", action="append", choices=list(CASES))
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="pb-") as name:
        os.environ["XDG_CACHE_HOME"] = name
        made = Tuner.of(built, MAJOR, Path(name))
        # A build of the plugin meanwhile changes nothing.
        tuner = Tuner(MAJOR, Path(shutil.copy(made.path, name)), made.folder)
        with serving(Path(name)) as server:
            found = compare(tuner, server, modules(arguments.modules), arguments.only or CASES, arguments.jobs)
    for case, each in found.items():
        print(f"{case}: {each}")
    wrong = sum(each.differing[name] for each in found.values() for name in DIFFERENCES[:-1])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

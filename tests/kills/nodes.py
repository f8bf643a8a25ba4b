"""``python -m tests.kills.nodes``: a training run on two nodes, of which one is killed, and one here.

Both have the same seed. The versions that they make are compared by their digests.
"""

import argparse
import dataclasses
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from policybridge_bench.processes import module, tail
from policybridge_core.errors import PolicyFailedError
from policybridge_train.compiling.options import add_compiler, add_plugins
from policybridge_train.corpus.description import Corpus
from policybridge_train.learning.record import Iteration, Record
from tests.ray_cluster import RayCluster, started_cluster


@dataclass
class Kill:
    """A node that is killed while a run goes on, and one that comes later.

    Attributes:
        cluster: a node is added to it at once.
        after: seconds from the end of iteration 0 until that node is killed.
        rejoin: seconds from then until another node is added; ``None`` for none.

    """

    cluster: RayCluster
    after: float
    rejoin: float | None

    def __post_init__(self) -> None:
        self.cluster.add_node()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.told: list[str] = []

    def begin(self) -> None:
        """Count from now on."""
        self._thread.start()

    def end(self) -> None:
        """Add and kill no more nodes."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        if self._over.wait(self.after):
            return
        self.cluster.kill_added_node()
        self.told.append(f"killed a node {time.monotonic() - began:.0f} s after iteration 0")
        if self.rejoin is not None and not self._over.wait(self.rejoin):
            self.cluster.add_node()
            self.told.append(f"added a node {time.monotonic() - began:.0f} s after iteration 0")


def options(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills.nodes", description=__doc__)
    add = parser.add_argument
    add("--corpus", type=Path, required=True, metavar="DIR", help="the corpus to train on")
    add("--every", type=int, default=1, metavar="N", help="take every n-th module of it (default: %(default)s)")
    add_compiler(parser)
    add_plugins(parser)
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="of the algorithm; repeatable")
    add("--seed", type=int, default=7, help="of both runs (default: %(default)s)")
    add("--kill", type=float, default=60, metavar="SECONDS", help="after iteration 0 (default: %(default)s)")
    add("--rejoin", type=float, metavar="SECONDS", help="later, another node joins (default: none)")
    add("--output", type=Path, metavar="DIR", help="keep the runs there (default: they are removed)")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Train twice, and tell; 1 if the versions are not the same."""
    asked = options(words)
    with started_cluster() as cluster:
        return run(asked, cluster)


def run(asked: argparse.Namespace, cluster: RayCluster) -> int:
    """Train by a cluster of one node, to which one is added, and then without it; see `main`."""
    with TemporaryDirectory(prefix="policybridge-bench-") as folder:
        output = asked.output or Path(folder)
        output.mkdir(parents=True, exist_ok=True)
        corpus = asked.corpus if asked.every == 1 else _part(asked.corpus, asked.every, Path(folder) / "corpus")
        words = ["inline", "--algo", "credit", "--corpus", str(corpus), "--seed", str(asked.seed), "--jobs", "2"]
        words += [word for value in asked.set for word in ("--set", value)]
        for name in ("compiler", "plugins"):
            words += [f"--{name}", str(getattr(asked, name))] if getattr(asked, name) is not None else []
        kill = Kill(cluster, asked.kill, asked.rejoin)
        try:
            by_ray = _train([*words, "--ray", cluster.address], output / "ray", kill)
        finally:
            kill.end()
        here = _train(words, output / "here")
    return _tell(by_ray, here, kill.told)


def _part(corpus: Path, every: int, folder: Path) -> Path:
    """Write every n-th module as a corpus of its own."""
    modules = []
    for each in Corpus.open(corpus).modules[::every]:
        moved = dataclasses.replace(each, folder=folder)
        moved.bitcode.parent.mkdir(parents=True, exist_ok=True)
        for ending in (".bc", ".cmd"):
            shutil.copyfile(f"{each.folder / each.name}{ending}", f"{folder / each.name}{ending}")
        modules.append(moved)
    Corpus(folder, modules).write()
    return folder


def _train(words: Sequence[str], output: Path, kill: Kill | None = None) -> list[Iteration]:
    """Train; the kill begins at the end of iteration 0, the compiler's own decisions."""
    command = module("policybridge_client.cli", "train", *words, "--output", output)
    log = output.with_suffix(".log")
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        for line in process.stdout or ():
            sys.stdout.write(f"{output.name}: {line}")
            sys.stdout.flush()
            if kill is not None and line.startswith("iteration 0: "):
                kill.begin()
    if process.returncode:
        raise PolicyFailedError(f"{command} ended with {process.returncode}\n{tail(log)}")
    with Record(output / "run.db", {}) as record:
        return list(record.iterations())


def _tell(by_ray: Sequence[Iteration], here: Sequence[Iteration], told: Sequence[str]) -> int:
    print("\n".join(told or ["no node was killed: the run ended before"]))
    print("iteration  compiles  seconds: two nodes  here  digest")
    for one, other in zip(by_ray, here, strict=False):
        same = "the same" if one.digest == other.digest else f"{other.digest} here"
        print(f"{one.number:9}  {one.compiles:8}  {one.seconds:18.0f}  {other.seconds:4.0f}  {one.digest} {same}")
    alike = [each.digest for each in by_ray] == [each.digest for each in here]
    print(f"{len(by_ray)} and {len(here)} versions: {'all the same' if alike else 'NOT the same'}")
    return 0 if alike and told else 1


if __name__ == "__main__":
    sys.exit(main())

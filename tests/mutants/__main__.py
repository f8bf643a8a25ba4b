"""`python -m tests.mutants`: change the server in small ways, and see whether the tests notice."""

import argparse
import json
import random
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Final

from tests.mutants.by_hand import by_hand
from tests.mutants.operators import Mutant, mutants_of
from tests.mutants.targets import TARGETS
from tests.mutants.trees import ROOT, Tree

_KILLED: Final = 0.95
"""Of the mutants, so many must be killed."""

_PATIENCE: Final = 3.0
"""So many times as long as without a mutant the tests may take, and a minute more."""


def main() -> int:
    """Run; the status is 1 if fewer than 95 % are killed."""
    arguments = _parsed()
    by_path: dict[str, list[Mutant]] = {}
    for mutant in _chosen(arguments):
        by_path.setdefault(mutant.path, []).append(mutant)
    folder = ROOT / ".cache" / "mutants"
    with ThreadPoolExecutor(arguments.jobs) as pool, Report(folder / "report.jsonl") as report:
        trees: Queue[Tree] = Queue()
        for number in range(arguments.jobs):
            trees.put(Tree(folder / str(number)))
        clean, ends = Clean(), time.monotonic() + 60 * arguments.minutes
        files = [pool.submit(_judge_file, mutants, trees, clean, report, ends) for mutants in by_path.values()]
        for file in files:
            file.result()
        return report.told()


class Report:
    """What became of each mutant: printed, and a line of JSON each in a file.

    Args:
        path: of the file.

    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")
        self._survivors: list[Mutant] = []
        self._killed = 0

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, mutant: Mutant, failure: str) -> None:
        """Take the test that failed, which is empty if the mutant has survived."""
        self._killed += bool(failure)
        self._survivors += [] if failure else [mutant]
        told = {"mutant": str(mutant), "old": mutant.old, "new": mutant.new, "by": failure}
        self._file.write(f"{json.dumps(told)}\n")
        self._file.flush()
        print("killed  " if failure else "SURVIVED", mutant, flush=True)

    def told(self) -> int:
        """Print the survivors and the share; give the exit status."""
        count = self._killed + len(self._survivors)
        for line in _lines(self._survivors):
            print(line)
        share = self._killed / max(1, count)
        print(f"{self._killed} of {count} mutants are killed: {share:.1%}")
        return int(share < _KILLED)


class Clean:
    """How long tests take without a mutant; each set of tests is run once."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, ...], float] = {}

    def seconds(self, tree: Tree, tests: list[str]) -> float:
        """Give the seconds; 0 if a test fails."""
        key = tuple(tests)
        if key not in self._seconds:
            begun = time.monotonic()
            failure = tree.failure(tests, 1800)
            if failure:
                print(f"left out: without a mutant there is {failure}", flush=True)
            self._seconds[key] = 0.0 if failure else time.monotonic() - begun
        return self._seconds[key]


def _judge_file(mutants: list[Mutant], trees: "Queue[Tree]", clean: Clean, report: Report, ends: float) -> None:
    """Run the tests of a file without a mutant, which says how long they take, and then with each."""
    tests, tree = TARGETS[mutants[0].path], trees.get()
    try:
        seconds = clean.seconds(tree, tests) if time.monotonic() < ends else 0.0
        for mutant in mutants if seconds else []:
            if time.monotonic() < ends:
                report.add(mutant, tree.failure(tests, _PATIENCE * seconds + 60, mutant))
    finally:
        trees.put(tree)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300, metavar="N", help="so many by chance, beside those by hand")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of chance")
    parser.add_argument("--only", default="", metavar="TEXT", help="only files whose path has this text")
    parser.add_argument("--minutes", type=float, default=600.0, metavar="N", help="begin no mutant after so many")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at a time")
    return parser.parse_args()


def _chosen(arguments: argparse.Namespace) -> list[Mutant]:
    """Give those by hand and those by chance, without those that cannot be noticed."""
    every = [mutant for path in sorted(TARGETS) for mutant in mutants_of(path, (ROOT / path).read_text())]
    accepted = _accepted()
    possible = [mutant for mutant in every if arguments.only in mutant.path and _key(mutant) not in accepted]
    random.Random(arguments.seed).shuffle(possible)
    hand = [mutant for mutant in by_hand(ROOT) if arguments.only in mutant.path]
    return hand + possible[: arguments.count]


def _accepted() -> set[tuple[str, str, str]]:
    """Give the mutants that no test can notice; `survivors.toml` has the reason of each."""
    text = (Path(__file__).parent / "survivors.toml").read_text()
    return {(each["path"], each["old"], each["new"]) for each in tomllib.loads(text).get("survivor", [])}


def _key(mutant: Mutant) -> tuple[str, str, str]:
    return mutant.path, mutant.old, mutant.new


def _lines(survivors: list[Mutant]) -> Iterator[str]:
    for mutant in survivors:
        yield f'\n[[survivor]]\npath = "{mutant.path}"  # line {mutant.line}'
        yield f"old = {json.dumps(mutant.old)}\nnew = {json.dumps(mutant.new)}\nreason = "


if __name__ == "__main__":
    sys.exit(main())

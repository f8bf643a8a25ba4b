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
    chosen = _chosen(arguments)
    folder = ROOT / ".cache" / "mutants"
    trees: Queue[Tree] = Queue()
    for number in range(arguments.jobs):
        trees.put(Tree(folder / str(number)))
    seconds = _seconds(trees, {mutant.path for mutant in chosen})
    chosen = [mutant for mutant in chosen if mutant.path in seconds]

    def judged(mutant: Mutant) -> tuple[Mutant, str]:
        tree = trees.get()
        try:
            return mutant, tree.failure(TARGETS[mutant.path], seconds[mutant.path], mutant)
        finally:
            trees.put(tree)

    survivors, killed = [], 0
    with ThreadPoolExecutor(arguments.jobs) as pool, (folder / "report.jsonl").open("w") as report:
        for mutant, failure in pool.map(judged, chosen):
            killed += bool(failure)
            survivors += [] if failure else [mutant]
            report.write(
                json.dumps({"mutant": str(mutant), "old": mutant.old, "new": mutant.new, "by": failure}) + "\n"
            )
            report.flush()
            print("killed  " if failure else "SURVIVED", mutant, flush=True)
    return _told(survivors, killed)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300, metavar="N", help="so many by chance, beside those by hand")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of chance")
    parser.add_argument("--only", default="", metavar="TEXT", help="only files whose path has this text")
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


def _seconds(trees: "Queue[Tree]", paths: set[str]) -> dict[str, float]:
    """Run the tests of each file once without a mutant; give the seconds that they may take with one."""
    found = {}
    tree = trees.get()
    took: dict[tuple[str, ...], float] = {}
    for path in sorted(paths):
        tests = tuple(TARGETS[path])
        if tests not in took:
            begun = time.monotonic()
            failure = tree.failure(list(tests), 1800)
            if failure:
                print(f"{path} is left out: without a mutant there is {failure}", flush=True)
                continue
            took[tests] = time.monotonic() - begun
        found[path] = _PATIENCE * took[tests] + 60
    trees.put(tree)
    return found


def _accepted() -> set[tuple[str, str, str]]:
    """Give the mutants that no test can notice; `survivors.toml` has the reason of each."""
    text = (Path(__file__).parent / "survivors.toml").read_text()
    return {(each["path"], each["old"], each["new"]) for each in tomllib.loads(text).get("survivor", [])}


def _key(mutant: Mutant) -> tuple[str, str, str]:
    return mutant.path, mutant.old, mutant.new


def _told(survivors: list[Mutant], killed: int) -> int:
    count = killed + len(survivors)
    for line in _lines(survivors):
        print(line)
    share = killed / max(1, count)
    print(f"{killed} of {count} mutants are killed: {share:.1%}")
    return int(share < _KILLED)


def _lines(survivors: list[Mutant]) -> Iterator[str]:
    for mutant in survivors:
        yield f'\n[[survivor]]\npath = "{mutant.path}"  # line {mutant.line}'
        yield f"old = {json.dumps(mutant.old)}\nnew = {json.dumps(mutant.new)}\nreason = "


if __name__ == "__main__":
    sys.exit(main())

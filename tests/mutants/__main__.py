"""`python -m tests.mutants`: change the server in small ways, and see whether the tests notice."""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Final

from tests.mutants.by_hand import by_hand
from tests.mutants.choice import Listed, area_of, drawn
from tests.mutants.operators import Mutant
from tests.mutants.results import Results
from tests.mutants.targets import TARGETS
from tests.mutants.trees import ROOT, Tree

_KILLED: Final = 0.95
"""Of the mutants that are not listed, so many must be killed."""

_PATIENCE: Final = 900.0
"""Seconds that the tests of one mutant may take; a mutant that makes them hang is killed."""


def main() -> int:
    """Run; the status is 1 if fewer than 95 % are killed."""
    arguments = _parsed()
    listed, folder = Listed(), ROOT / ".cache" / "mutants"
    hand = [] if arguments.chance else by_hand(ROOT)
    chosen = [each for each in [*hand, *drawn(ROOT, arguments.count, arguments.seed)] if arguments.only in each.path]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        trees: Queue[Tree] = Queue()
        for number in range(arguments.jobs):
            trees.put(Tree(folder / str(number)))
        run = Run(Results(folder / "results.jsonl"), time.monotonic() + 60 * arguments.minutes)
        for judged in [pool.submit(run.judge, mutant, trees) for mutant in chosen if mutant not in listed]:
            judged.result()
    return run.told(chosen, listed, arguments.tally)


class Run:
    """Judges mutants, unless their result is known.

    Args:
        results: those of earlier runs; new ones are added.
        ends: when no mutant is begun any more, by `time.monotonic`.

    """

    def __init__(self, results: Results, ends: float) -> None:
        self._results = results
        self._ends = ends
        self._by: dict[Mutant, str] = {}

    def judge(self, mutant: Mutant, trees: "Queue[Tree]") -> None:
        """Run the tests of a mutant, in a tree that is free."""
        tree = trees.get()
        try:
            self._judge(mutant, mutant.tests or TARGETS[mutant.path], tree)
        finally:
            trees.put(tree)

    def _judge(self, mutant: Mutant, tests: Sequence[str], tree: Tree) -> None:
        source, texts = tree.text(mutant.path), [tree.text(each.partition("::")[0]) for each in tests]
        known = self._results.find(mutant, source, texts)
        if known is not None:
            self._by[mutant] = known.by
            return
        if time.monotonic() < self._ends:
            begun = time.monotonic()
            by = tree.failure(tests, _PATIENCE, mutant)
            if by and not _is_sound(by, tests, tree):
                print(f"left out: without the mutant there is {by}, too: {mutant}", flush=True)
                return
            self._by[mutant] = by
            self._results.add(mutant, source, texts, by)
            print(f"{'killed  ' if by else 'SURVIVED'} {time.monotonic() - begun:3.0f} s {mutant}  {by}", flush=True)

    def told(self, chosen: Sequence[Mutant], listed: Listed, tally: Path | None) -> int:
        """Print the survivors and a table of the areas, and write its last line to ``tally``; give the exit status."""
        for line in _lines([mutant for mutant, by in self._by.items() if not by]):
            print(line)
        table: Counter[tuple[str, str]] = Counter()
        for mutant in chosen:
            by = self._by.get(mutant)
            what = "listed" if mutant in listed else "not run" if by is None else "killed" if by else "survived"
            table[area_of(mutant.path), what] += 1
        columns = ("killed", "survived", "listed", "not run")
        print(f"\n{'':12}{''.join(f'{column:>10}' for column in columns)}")
        for area in [*sorted({area for area, _ in table}), "all"]:
            counts = [
                sum(n for (of, what), n in table.items() if area in (of, "all") and what == column)
                for column in columns
            ]
            print(f"{area:12}{''.join(f'{count:10}' for count in counts)}")
        if tally:
            tally.write_text(json.dumps(dict(zip(columns, counts, strict=True))))
        killed, survived, known, _ = counts
        share, of_all = killed / max(1, killed + survived), killed / max(1, killed + survived + known)
        print(f"\n{share:.1%} are killed; {of_all:.1%} if listed ones count as survivors")
        return int(share < _KILLED)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=20, metavar="N", help="so many of each area, beside those by hand")
    parser.add_argument("--chance", action="store_true", help="none by hand")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of chance")
    parser.add_argument("--only", default="", metavar="TEXT", help="only files whose path has this text")
    parser.add_argument("--minutes", type=float, default=600.0, metavar="N", help="begin no mutant after so many")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at a time")
    parser.add_argument("--tally", type=Path, metavar="FILE", help="write the counts of all areas to this file")
    return parser.parse_args()


def _is_sound(by: str, tests: Sequence[str], tree: Tree) -> bool:
    """Whether what failed passes without the mutant, on a machine that may be as busy now as it was then."""
    return not tree.failure([by] if by.startswith("tests/") else tests, _PATIENCE)


def _lines(survivors: Sequence[Mutant]) -> Iterator[str]:
    for mutant in survivors:
        yield f'\n[[survivor]]\npath = "{mutant.path}"  # line {mutant.line}'
        yield f"old = {json.dumps(mutant.old)}\nnew = {json.dumps(mutant.new)}\nreason = "


if __name__ == "__main__":
    sys.exit(main())

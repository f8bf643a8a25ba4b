"""Compare programs for as long as one lets it: ``python -m tests.native.llvm.differential --minutes 5``."""

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

from tests.native.conftest import MAJORS, built
from tests.native.llvm.differential.comparing import compare


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print each disagreement and at the end a line of counts; return 1 if there was one."""
    options = _options(arguments)
    target = f"policybridge-inliner-{options.major}"
    plugin = options.plugin or built(target) / "lib" / f"{target}.so"
    one = partial(_compared, major=options.major, plugin=plugin)
    programs, disagreements = 0, 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for found in pool.map(one, _seeds(options), chunksize=1) if options.programs else _until(pool, one, options):
            programs += 1
            disagreements += len(found)
            print(*found, sep="\n", end="\n" if found else "", flush=True)
    print(f"{programs} programs, each with two sets of choices: {disagreements} disagreements")
    return 1 if disagreements else 0


def _compared(seed: int, major: str, plugin: Path) -> list[str]:
    return [str(each) for each in compare(seed, major, plugin)]


def _seeds(options: argparse.Namespace) -> range:
    return range(options.seed, options.seed + options.programs)


def _until(pool: ProcessPoolExecutor, one: "partial[list[str]]", options: argparse.Namespace) -> Iterator[list[str]]:
    end = time.monotonic() + 60 * options.minutes
    seeds = count(options.seed)
    while time.monotonic() < end:
        yield from pool.map(one, [next(seeds) for _ in range(4 * options.jobs)])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.native.llvm.differential", description=__doc__)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--programs", type=int, help="how many programs")
    length.add_argument("--minutes", type=float, default=1.0, help="for how long (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="the first program (default: 0)")
    parser.add_argument("--major", choices=MAJORS, default=MAJORS[-1], help="of LLVM (default: %(default)s)")
    parser.add_argument("--plugin", type=Path, help="policybridge-inliner-MAJOR.so (default: built)")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time (default: 1)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())

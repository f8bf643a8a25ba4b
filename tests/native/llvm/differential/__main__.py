"""Compare programs for as long as one lets it: ``python -m tests.native.llvm.differential --minutes 5``."""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.native.conftest import MAJORS, ROOT, built
from tests.native.llvm.differential.comparing import Compared, Compiler, compare
from tests.native.llvm.differential.resident import Resident
from tests.native.llvm.differential.tally import Tally

_PIECE = 32
"""Seeds that one compiler compares between two looks at the clock."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print each disagreement and at the end a line of counts; return 1 if there was one."""
    options = _options(arguments)
    target = f"policybridge-inliner-{options.major}"
    plugin = (options.plugin or built(target) / "lib" / f"{target}.so").resolve()
    tally = Tally.read(options.tally, options.major, plugin)
    if options.seed is not None:
        tally = Tally(tally.compiler, tally.plugin, options.seed)
    with ThreadPoolExecutor(options.jobs) as pool:
        for compared in _compared(pool, partial(_compare, options.major, plugin), tally, options):
            tally.add(compared)
            print(*compared.disagreements, sep="\n", end="\n" if compared.disagreements else "", flush=True)
            if options.seed is None:
                tally.write(options.tally)
    print(tally)
    return 1 if tally.disagreements else 0


def _compared(
    pool: Executor, one: Callable[[Sequence[int]], list[Compared]], tally: Tally, options: argparse.Namespace
) -> Iterator[Compared]:
    """Compare pieces of seeds until the time is over or enough programs have been."""
    end = time.monotonic() + 60 * options.minutes
    seeds = count(tally.next_seed)
    while tally.counts["programs"] < options.programs and time.monotonic() < end:
        most = min(_PIECE, options.programs - tally.counts["programs"])
        pieces = [[next(seeds) for _ in range(most)] for _ in range(options.jobs)]
        for piece in pool.map(one, pieces):
            yield from piece


def _compare(major: str, plugin: Path, seeds: Sequence[int]) -> list[Compared]:
    with TemporaryDirectory(prefix="policybridge-") as name:
        folder = Path(name)
        with Resident(f"clang-{major}", folder) as resident:
            compiler = Compiler(major, plugin, folder, resident)
            return [compare(seed, compiler) for seed in seeds]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.native.llvm.differential", description=__doc__)
    parser.add_argument("--programs", type=int, default=10**9, help="how many programs in all, with those in --tally")
    parser.add_argument("--minutes", type=float, default=10**6, help="for how long at most")
    parser.add_argument("--seed", type=int, help="the first program, of a run that is not added to --tally")
    parser.add_argument("--major", choices=MAJORS, default=MAJORS[-1], help="of LLVM (default: %(default)s)")
    parser.add_argument("--plugin", type=Path, help="policybridge-inliner-MAJOR.so (default: built)")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time (default: 1)")
    parser.add_argument(
        "--tally", type=Path, default=ROOT / ".cache/differential.json", help="totals of the runs so far"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())

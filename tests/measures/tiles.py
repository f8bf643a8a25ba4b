"""Score a trained policy of tiles on held-out shapes: ``python -m tests.measures.tiles RUN``.

RUN is the folder of ``policybridge train tile --algo choices``, which has ended. Each held-out shape is tiled by the
version that was best on the validation shapes, and by fixed tiles; the misses are compared with those of the default.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_train.command_line import count
from policybridge_train.compiling.result import CompileResult
from policybridge_train.corpus.parts import Part
from policybridge_train.learning.record import Record
from policybridge_train.learning.training import cases_of, total_factor
from policybridge_train.processes.process import Running
from policybridge_train.processes.threads import for_each
from policybridge_train.tasks.task import Asking, Case
from policybridge_train.tasks.tiling import SIZES, Tiling
from policybridge_train.trajectories.server import TrainingServer

_SAMPLES: Final = 10_000
_COST: Final = "misses_log2"

Costs = Mapping[str, npt.NDArray[np.float64]]


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 2 for what cannot be done."""
    parser = argparse.ArgumentParser(prog="tests.measures.tiles", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument(
        "--nests", default="240", metavar="N", help="as the run was trained with (default: %(default)s)"
    )
    parser.add_argument("--usual", default="32", metavar="SIZE", help="the default tile (default: %(default)s)")
    parser.add_argument(
        "--fixed", default=",".join(map(str, SIZES)), metavar="SIZES", help="tiles (default: %(default)s)"
    )
    parser.add_argument("--plugins", default="", metavar="DIR")
    parser.add_argument("--jobs", type=count, default=os.cpu_count() or 1, metavar="N")
    arguments = parser.parse_args(words)
    try:
        _compare(arguments)
    except PolicyBridgeError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
    return 0


def _compare(arguments: argparse.Namespace) -> None:
    task = Tiling(arguments.nests, arguments.usual, plugins=arguments.plugins)
    cases = cases_of(task.cases(None), Part.HELD_OUT)
    with TrainingServer(arguments.run) as server:
        with Record(arguments.run / "run.db", {}) as record:
            done = record.iterations()
        best = min(done, key=lambda each: total_factor(each.costs, done[0].costs)).version
        asking = Asking(server.socket, f"{task.name}@{best}")
        costs = {f"{task.name}@{best}": _costs(task, cases, asking, arguments.jobs)}
        for size in dict.fromkeys([arguments.usual, *arguments.fixed.split(",")]):
            fixed = Tiling(arguments.nests, size, plugins=arguments.plugins)
            fixed.cases(None)
            costs[size] = _costs(fixed, cases, None, arguments.jobs)
    print(f"{len(cases)} held-out shapes; misses against the default tile {arguments.usual}, geometric mean and 95 %")
    kinds = [("all", np.ones(len(cases), bool))]
    kinds += [(kind, np.array([case.name.startswith(kind) for case in cases])) for kind in ("matmul", "conv")]
    for name, chosen in kinds:
        _print(name, {who: cost[chosen] for who, cost in costs.items()}, arguments.usual)


def _costs(task: Tiling, cases: Sequence[Case], asking: Asking | None, jobs: int) -> npt.NDArray[np.float64]:
    """Run all cases; give the logarithms of their misses.

    Raises:
        PreconditionError: one of them failed.

    """

    def run(case: Case) -> CompileResult:
        ran = task.run(case, asking)
        if not ran.ok:
            raise PreconditionError(f"{case.name}: {ran.failure}")
        return ran

    running = Running()
    running.end_also(task.end)
    return np.array([ran.totals[_COST] for ran in for_each(run, cases, jobs, running)])


def _print(kind: str, costs: Costs, usual: str) -> None:
    print(f"\n{kind}, {len(costs[usual])} shapes\n{'tile':>8}  {'change':>8}  {'95 %':>18}  better  worse")
    for who, cost in costs.items():
        change = cost - costs[usual]
        value, low, high = (100 * (2**each - 1) for each in _interval(change))
        better, worse = int((change < 0).sum()), int((change > 0).sum())
        print(f"{who:>8}  {value:+7.1f}%  {low:+7.1f} to {high:+6.1f}%  {better:6}  {worse:5}")


def _interval(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """Give the mean and its 95 % interval, by a bootstrap over the shapes."""
    chance = np.random.default_rng(0)
    means = chance.choice(values, (_SAMPLES, len(values))).mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(values.mean()), float(low), float(high)


if __name__ == "__main__":
    sys.exit(main())

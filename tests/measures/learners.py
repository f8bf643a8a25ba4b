"""Compare the training algorithms at equal numbers of compiles.

    python -m tests.measures.learners FOLDER --corpus DIR [--compiles 8600] [--run NAME]…

Every run has a folder of its name in FOLDER, where an ended
run goes on. It prints the change of the validation projects' text by compiles; ``curves.html`` plots it. The best
version of each run is copied to ``policies``, where a server finds it under the name of the run, and
``policybridge score --part held-out`` scores it.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import plotly.graph_objects as plots

from policybridge_train.command_line import count
from policybridge_train.compiling.options import add_compiler, add_plugins
from policybridge_train.learning.record import Iteration, Record
from policybridge_train.learning.training import total_factor

RUNS: Final[Mapping[str, Sequence[str]]] = {
    "credit": ("credit", "iterations=99"),
    "es": ("es", "iterations=999"),
    "es-module": ("es", "iterations=999", "reward=module"),
    "ppo": ("ppo", "iterations=999"),
    "ppo-module": ("ppo", "iterations=999", "reward=module"),
    "bcmax": ("bcmax", "iterations=999"),
    "bc": ("bc",),
}
"""The algorithm of each run, and its settings."""

_MARKS: Final = 6


def main() -> int:
    """Train, compare; the exit status is 1 where a run failed."""
    options = _parser().parse_args()
    found = {}
    for name in options.run or RUNS:
        folder = options.folder / name
        if subprocess.run(_command(options, name), stdout=sys.stderr, check=False).returncode:
            return 1
        with Record(folder / "run.db", {}) as record:
            found[name] = record.iterations()
        best = min(found[name], key=lambda each: total_factor(each.costs, found[name][0].costs))
        _keep(folder / "policies" / "inline", str(best.version), options.folder / "policies" / name)
    _show(found, options.compiles)
    _plot(found, options.folder / "curves.html")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.measures.learners", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    parser.add_argument("--compiles", type=count, default=8600, metavar="N", help="of each run (default: %(default)s)")
    parser.add_argument("--run", action="append", choices=RUNS, metavar="NAME", help="%(choices)s; repeatable")
    add_compiler(parser)
    add_plugins(parser)
    return parser


def _command(options: argparse.Namespace, name: str) -> list[str]:
    algorithm, *settings = RUNS[name]
    words = ["--algo", algorithm, "--compiles", str(options.compiles)]
    for option in ("compiler", "plugins"):
        words += [f"--{option}", str(getattr(options, option))] if getattr(options, option) is not None else []
    words += [word for setting in settings for word in ("--set", setting)]
    train = [sys.executable, "-m", "policybridge_client.cli", "train", "inline", *words]
    return [*train, "--corpus", str(options.corpus), "--output", str(options.folder / name)]


def _keep(policy: Path, version: str, kept: Path) -> None:
    shutil.copytree(policy / version, kept / "1", dirs_exist_ok=True)
    # Versions that share a file have it beside them.
    shutil.copy(policy / "policy.toml", kept)


def _curve(iterations: Sequence[Iteration]) -> list[tuple[int, float]]:
    """Give the compiles of each iteration, and the change of the best version so far in percent."""
    best, curve = 0.0, []
    for each in iterations:
        best = min(best, 100 * (total_factor(each.costs, iterations[0].costs) - 1))
        curve.append((each.compiles, best))
    return curve


def _show(found: Mapping[str, Sequence[Iteration]], compiles: int) -> None:
    marks = [compiles * part // _MARKS for part in range(1, _MARKS + 1)]
    print("best version so far, text of the validation projects in percent, by compiles\n")
    print(f"{'':12}" + "".join(f"{mark:>9,}" for mark in marks) + "      at the end")
    for name, iterations in found.items():
        curve = _curve(iterations)
        reached = [min((change for count, change in curve if count <= mark), default=0.0) for mark in marks]
        last, change = curve[-1]
        print(f"{name:12}" + "".join(f"{each:+9.2f}" for each in reached) + f"{change:+9.2f} with {last:,}")


def _plot(found: Mapping[str, Sequence[Iteration]], file: Path) -> None:
    title = "text of the validation projects: change in percent of the best version so far, by compiles"
    drawn = plots.Figure(layout={"title": title, "height": 640})
    for name, iterations in found.items():
        compiles, changes = zip(*_curve(iterations), strict=True)
        drawn.add_scatter(x=compiles, y=changes, mode="lines+markers", name=name, line={"shape": "hv"})
    drawn.write_html(file)


if __name__ == "__main__":
    sys.exit(main())

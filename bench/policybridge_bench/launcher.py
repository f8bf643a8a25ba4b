"""What `policybridge-run` and `policybridge run` add to a compile, beside the bare compiler in one interleaved run.

    python -m policybridge_bench.launcher LAUNCHER [--compiler clang-22] [--rounds 50] [--json FILE]

LAUNCHER is the program ``policybridge-run``. Every round compiles the same module once with each, in an order that
changes from round to round, and what counts is the median over the rounds of the difference to the bare compiler in the
same round; of the time on the clock, and of the processors' time, which a busy machine changes less:

1. a module that asks nothing, which is what starting the host costs;
2. a module that asks often, which is what a decision costs, the compiler's own work for it included;
3. a command that compiles nothing.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

_BARE: Final = "bare compiler"
_ASKING_FUNCTIONS: Final = 100
_WARM_UP: Final = 3


def write_modules(folder: Path) -> None:
    """Write the module that asks nothing, and the one that asks often."""
    (folder / "quiet.c").write_text("int quiet(int x) { return x + 1; }\n")
    lines = ["int sink(int);"]
    for n in range(_ASKING_FUNCTIONS):
        body = f"int s = {n}; for (int i = 0; i < x; i++) s += sink(s) ^ i; return s;"
        lines.append(f"static int middle{n}(int x) {{ {body} }}")
        lines.append(f"int outer{n}(int x) {{ return middle{n}(x) + middle{n}(x + 1); }}")
    (folder / "asking.c").write_text("\n".join(lines) + "\n")


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the policy that echoes LLVM's own decision; give the socket's address."""
    listen = ["--grpc", "127.0.0.1:0", "--socket", str(folder / "policy.sock")]
    command = [sys.executable, "-m", "policybridge_client.cli", "serve", "--demo", *listen]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1] if process.stdout else ""
        finally:
            process.terminate()


def milliseconds(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Run a command to its end and give how long that took, on the clock and of the processors' time."""
    started, used = time.perf_counter(), _used()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - started) * 1e3, (_used() - used) * 1e3


def _used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def interleaved(commands: Mapping[str, Sequence[str]], folder: Path, rounds: int) -> Mapping[str, np.ndarray]:
    """Give each command's milliseconds, a row of both times for each round."""
    names = list(commands)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(-_WARM_UP, rounds):
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            took = milliseconds(commands[name], folder)
            if number >= 0:
                times[name].append(took)
    return {name: np.array(taken) for name, taken in times.items()}


def decisions(command: Sequence[str], folder: Path) -> int:
    """Give how often a command asks."""
    place = command.index("--")
    subprocess.run([*command[:place], "--stats", "stats.json", *command[place:]], cwd=folder, check=True)
    return int(json.loads((folder / "stats.json").read_text())["decisions"])


def figures(what: str, times: Mapping[str, np.ndarray]) -> Mapping[str, float]:
    """Give the medians, in milliseconds."""
    bare = times[_BARE]
    told = {f"{what}: {_BARE}, ms": float(np.median(bare[:, 0]))}
    for name, taken in times.items():
        if name != _BARE:
            clock, used = (float(added) for added in np.median(taken - bare, axis=0))
            told |= {f"{what}: {name} adds, ms": clock, f"{what}: {name} adds, ms of processor": used}
    return told


def for_each_decision(told: Mapping[str, float], host: str) -> Mapping[str, float]:
    """Give what a decision costs, in microseconds of the compiler and its host, without the server's.

    It is what the module that asks adds beyond the one that does not.
    """
    often, quiet = (told[f"{what}: {host} adds, ms of processor"] for what in ("asks often", "asks nothing"))
    return {f"each decision: {host} adds, µs of processor": (often - quiet) / told["asks often: decisions"] * 1e3}


def measure(launcher: str, compiler: str, rounds: int) -> Mapping[str, float]:
    """Measure in a folder of its own."""
    hosts = {
        "policybridge-run": [launcher],
        "policybridge run": [sys.executable, "-m", "policybridge_client.cli", "run"],
    }
    told: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        write_modules(folder)
        with serving(folder) as address:
            for what, arguments in (
                ("asks nothing", ["-Oz", "-c", "quiet.c", "-o", "made.o"]),
                ("asks often", ["-Oz", "-c", "asking.c", "-o", "made.o"]),
                ("compiles nothing", ["-fsyntax-only", "quiet.c"]),
            ):
                bare = [compiler, *arguments]
                asking = ["--policy", "inlining-default", "--server", address, "--fallback", "error", "--", *bare]
                commands = {_BARE: bare, **{host: [*start, *asking] for host, start in hosts.items()}}
                told[f"{what}: decisions"] = decisions(commands["policybridge-run"], folder)
                told |= figures(what, interleaved(commands, folder, rounds))
    for host in hosts:
        told |= for_each_decision(told, host)
    return told


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("launcher", help="the program policybridge-run")
    parser.add_argument("--compiler", default="clang-22")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", type=Path, help="write all figures there")
    arguments = parser.parse_args()
    told = measure(str(Path(arguments.launcher).resolve()), arguments.compiler, arguments.rounds)
    for name, value in told.items():
        print(f"{name:<64} {value:10,.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()

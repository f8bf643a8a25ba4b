"""Record compilations of the demo, stop the server, and replay them: objects and observations must be the same.

    python -m tests.measures.replays [--count 50] [--compiler zig] [--policy inliner] [--jobs 2]

Then one observation of every record is changed, and every replay must report it.
"""

import argparse
import os
import sqlite3
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.replay import Replayed, replay
from policybridge_client.llvm.replay_command import load_recorded
from policybridge_demo.compilation import compile_listening
from policybridge_demo.compilers import COMPILERS
from policybridge_demo.corpus import Module, check_sources, demo_modules
from policybridge_demo.server import demo_server
from policybridge_demo.workers import for_each
from policybridge_serdes import PolicyReference, Values


@dataclass(frozen=True)
class Recorded:
    """A recorded compilation: its session (``None`` if it had no observations) and its wall time in seconds."""

    session: str | None
    seconds: float


def record(compiler: str, config: HostConfig, module: Module) -> Recorded:
    """Compile with the decisions of a policy."""
    _, report = compile_listening(compiler, config, _leave, module)
    return Recorded(next(iter(report.session_ids), None), report.seconds)


def _leave(observation: Values, advice: Values) -> None:
    """Ignore the decision."""


def repeat(ledger: Path, sessions: dict[Module, str], module: Module) -> tuple[Replayed, float]:
    """Replay one session; return the result and the wall time in seconds."""
    begun = perf_counter()
    result = replay(load_recorded(ledger, sessions[module]))
    return result, perf_counter() - begun


def tamper(ledger: Path) -> None:
    """Change one byte of the first observation of every session."""
    with sqlite3.connect(ledger) as database:
        for number, column in database.execute("SELECT rowid, observations FROM segments WHERE first = 1").fetchall():
            # What says in front that records lie in planes; the first one's first byte is the first there, too.
            front = column[: {1: 1, 2: 2}.get(column[0], 0)]
            data = bytearray(zlib.decompress(column[len(front) :]))
            data[0] ^= 1
            changed = front + zlib.compress(data)
            database.execute("UPDATE segments SET observations = ? WHERE rowid = ?", (changed, number))
    database.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check and print its figures; the exit status is 0 if all replays are as expected."""
    options = _parser().parse_args(arguments)
    with TemporaryDirectory(prefix="policybridge-replays-") as folder:
        ledger = Path(folder) / "ledger.db"
        sessions, recorded = _record(options, ledger)
        replayed = _replay(options, ledger, sessions)
        tamper(ledger)
        tampered = _replay(options, ledger, sessions)
    for module, (result, _) in replayed.items():
        if not (result.identical and result.object):
            print(f"{module.path}: {result}")
    same = sum(result.identical and result.object for result, _ in replayed.values())
    told = sum(not result.identical and result.step == 1 for result, _ in tampered.values())
    decisions = sum(result.decisions for result, _ in replayed.values())
    seconds = sum(taken for _, taken in replayed.values())
    print(f"{len(sessions)} compilations by {options.compiler}, {decisions} decisions of {options.policy}")
    print(f"replayed without a server: {same} identical, observations and object")
    print(f"with one byte of the first observation changed: {told} reported as different at step 1")
    print(f"seconds of compilation: {recorded:.1f} recorded, {seconds:.1f} replayed")
    return 0 if same == told == len(sessions) == options.count else 1


def _record(options: argparse.Namespace, ledger: Path) -> tuple[dict[Module, str], float]:
    modules = demo_modules()
    check_sources(modules)
    # The modules are sorted by compile time; taking every n-th gives modules of all sizes.
    modules = modules[:: max(1, len(modules) // (2 * options.count))]
    with demo_server("--ledger", str(ledger)) as server:
        config = HostConfig(PolicyReference.parse(options.policy), server, fallback="error")
        made = {
            modules[n]: done for n, done in for_each(partial(record, options.compiler, config), modules, options.jobs)
        }
    asked = {module: done for module, done in made.items() if done.session is not None}
    chosen = dict(list(asked.items())[: options.count])
    sessions = {module: done.session for module, done in chosen.items() if done.session is not None}
    return sessions, sum(done.seconds for done in chosen.values())


def _replay(
    options: argparse.Namespace, ledger: Path, sessions: dict[Module, str]
) -> dict[Module, tuple[Replayed, float]]:
    modules = list(sessions)
    return {modules[n]: done for n, done in for_each(partial(repeat, ledger, sessions), modules, options.jobs)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.measures.replays", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--count", type=int, default=50, metavar="N", help="compilations with at least one decision")
    parser.add_argument("--compiler", choices=list(COMPILERS), default="zig")
    parser.add_argument("--policy", default="inliner", metavar="NAME[@VERSION]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="compilers at a time")
    return parser


if __name__ == "__main__":
    sys.exit(main())

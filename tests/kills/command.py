"""``python -m tests.kills``: kill −9 servers, workers, replicas, databases and publishers under full load."""

import argparse
import random
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

import msgspec

from policybridge_core.errors import PreconditionError
from tests.kills.alone import Alone
from tests.kills.checks import Figures
from tests.kills.database import Database
from tests.kills.replicas import Replicas
from tests.kills.scene import Given, Scene
from tests.kills.workers import Workers
from tests.postgres_soak.cluster import programs

_SCENES: Final[dict[str, type[Scene]]] = {
    "alone": Alone,
    "workers": Workers,
    "replicas": Replicas,
    "database": Database,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill ``--kills`` processes at random moments, check after each, and print the totals; 1 for any loss.

    Raises:
        PolicyFailedError: a server did not start again after a kill.

    """
    parser = _parser()
    options = parser.parse_args(arguments)
    tally = Path(options.tally) if options.tally else None
    figures = _read(tally) if tally and tally.exists() else Figures()
    scenes = options.scenes.split(",")
    if unknown := [scene for scene in scenes if scene not in _SCENES]:
        parser.error(f"{unknown[0]!r} is no scene; there are {', '.join(_SCENES)}")
    if "database" in scenes:
        _check_postgres(parser)
    end = monotonic() + 60 * options.minutes
    while figures.kills < options.kills and monotonic() < end:
        scene = scenes[figures.blocks % len(scenes)]
        _block(scene, min(figures.kills + options.block, options.kills), end, options, figures)
        figures.blocks += 1
        if tally:
            tally.write_bytes(msgspec.json.encode(figures))
        sys.stderr.write(f"{scene}: {figures.kills} kills, {len(figures.faults)} faults\n")
    _print(figures)
    return 1 if figures.faults else 0


def _check_postgres(parser: argparse.ArgumentParser) -> None:
    try:
        programs()
    except PreconditionError as missing:
        parser.error(
            f"{missing}; or play the others: --scenes {','.join(name for name in _SCENES if name != 'database')}"
        )


def _read(tally: Path) -> Figures:
    return msgspec.json.decode(tally.read_bytes(), type=Figures, dec_hook=lambda _, counts: Counter(counts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    add = parser.add_argument
    add("--kills", type=int, default=20, metavar="N", help="number of processes to kill (default: %(default)s)")
    add("--minutes", type=float, default=inf, metavar="M", help="minutes after which it stops (default: never)")
    add("--scenes", default=",".join(_SCENES), metavar="LIST", help="by turns (default: %(default)s)")
    add("--block", type=int, default=24, metavar="N", help="kills until the next scene begins (default: %(default)s)")
    add("--seed", type=int, default=0, metavar="N", help="of victims, moments and clocks (default: 0)")
    add("--tally", metavar="FILE", help="write the totals there after each scene; go on from those that it has")
    add("--keep", metavar="DIR", help="keep the files of scenes with a fault there")
    return parser


def _block(name: str, until: int, end: float, options: argparse.Namespace, figures: Figures) -> None:
    """Play a scene up to a number of kills, or to a moment, in a folder of its own."""
    faults = len(figures.faults)
    with TemporaryDirectory(prefix="pb-") as folder, ExitStack() as stack:
        chance = random.Random(f"{options.seed} {figures.blocks}")
        try:
            scene = _SCENES[name](Given(Path(folder), stack, chance, figures))
            while figures.kills < until and monotonic() < end:
                scene.round()
            scene.finish()
        except BaseException:
            faults = -1
            raise
        finally:
            if options.keep and len(figures.faults) > faults:
                kept = Path(options.keep) / f"{figures.blocks}-{name}"
                shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("s", "g", "*fifo*"), dirs_exist_ok=True)


def _print(figures: Figures) -> None:
    killed = ", ".join(f"{count} of {kind}" for kind, count in sorted(figures.killed.items()))
    jumps = ", ".join(f"{count} of the {clock}" for clock, count in figures.jumps.items())
    print(f"killed: {figures.kills}: {killed}")
    print(f"jumps: {jumps}")
    print(f"acknowledged decisions: {figures.decisions}, of them dropped in their turn by retention: {figures.dropped}")
    print(f"acknowledged ends of sessions: {figures.ends}; acknowledged versions: {figures.published}")
    print(f"acknowledged changes of latest, by publications, roll-outs and ways back: {figures.named}")
    print(f"decisions that nobody acknowledged and that were missing 2 s later, at most: {figures.late}")
    print(f"lost or damaged: {len(figures.faults)}")
    for fault in figures.faults[:20]:
        print(f"  {fault}")

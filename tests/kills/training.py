"""Kill a training run's trainer, server and compilers at random; it must end with the versions of an undisturbed run.

    python -m tests.kills.training --corpus DIR --minutes 10 [--seed 0] -- WORD…

The words are those of ``policybridge train`` without --corpus and --output: ``inline --algo credit --project lib* …``.
After the minutes nothing is killed any more, so that the run can end. Needs psutil (extra ``bench``).
"""

import argparse
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

import psutil

from policybridge_train.learning.record import Record

_BETWEEN: Final = (1.0, 12.0)
"""Seconds between two kills."""


def main() -> int:
    """Train twice, once with kills; return 0 if both ended with the same versions."""
    options = _parser().parse_args()
    with TemporaryDirectory(prefix="pb-") as name:
        quiet, disturbed = Path(name) / "quiet", Path(name) / "disturbed"
        kills = _disturbed(_command(options, disturbed), random.Random(options.seed), options.minutes)
        subprocess.run(_command(options, quiet), check=True, stdout=subprocess.DEVNULL)
        same = _digests(quiet) == _digests(disturbed)
        counts = ", ".join(f"{count} of {who}" for who, count in sorted(kills.items()))
        print(
            f"killed: {counts}; {len(_digests(disturbed))} iterations, versions {'the same' if same else 'DIFFERENT'}"
        )
        return 0 if same else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.kills.training", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    parser.add_argument("--minutes", type=float, default=10.0, metavar="M", help="of killing (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the kills (default: %(default)s)")
    parser.add_argument("words", nargs="+", metavar="-- WORD", help="of policybridge train")
    return parser


def _command(options: argparse.Namespace, output: Path) -> list[str]:
    train = [sys.executable, "-m", "policybridge_client.cli", "train", *options.words]
    return [*train, "--corpus", str(options.corpus), "--output", str(output)]


def _disturbed(command: Sequence[str], chance: random.Random, minutes: float) -> Counter[str]:
    """Train with kills; a trainer that was killed is started again. Gives how many of each were killed."""
    kills: Counter[str] = Counter()
    until = monotonic() + 60 * minutes
    while True:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as trainer:
            while trainer.poll() is None and monotonic() < until:
                with suppress(subprocess.TimeoutExpired):
                    trainer.wait(chance.uniform(*_BETWEEN))
                if trainer.poll() is None:
                    kills[_kill(trainer.pid, chance)] += 1
            if trainer.wait() == 0:
                return kills
            if trainer.returncode > 0:
                raise SystemExit(f"the trainer ended with {trainer.returncode}, and nobody had killed it")


def _kill(trainer: int, chance: random.Random) -> str:
    """Kill the trainer, its server or one of its compilers; say which."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(trainer).children(recursive=True)
        servers = [one for one in children if "serve" in one.cmdline()]
        compilers = [one for one in children if "-cc1" in one.cmdline()]
        who, victims = chance.choice(
            [("the server", servers), ("a compiler", compilers), ("a compiler", compilers), ("the trainer", [])]
        )
        if victims:
            chance.choice(victims).kill()
            return who
        psutil.Process(trainer).kill()
        return "the trainer"
    return "nobody"


def _digests(output: Path) -> list[str]:
    with Record(output / "run.db", {}) as record:
        return [iteration.digest for iteration in record.iterations()]


if __name__ == "__main__":
    sys.exit(main())

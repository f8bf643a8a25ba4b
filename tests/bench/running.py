"""``policybridge bench`` as its users run it, and ``python -m tests.peers``."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from policybridge_bench.results import Run, read_json
from tests.conftest import command

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "bench"


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    status: int
    output: str
    errors: str


def bench(*arguments: object, env: Mapping[str, str] | None = None) -> Ended:
    """Run it to its end."""
    return _end(command("bench", *arguments), env or {})


def peers(*arguments: object, env: Mapping[str, str] | None = None) -> Ended:
    """Run the maintainers' command to its end."""
    return _end([sys.executable, "-m", "tests.peers", *map(str, arguments)], env or {})


def _end(words: Sequence[str], env: Mapping[str, str]) -> Ended:
    words = [*words, "--cache", str(CACHE)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **env}, cwd=ROOT)
    return Ended(done.returncode, done.stdout, done.stderr)


def measured(folder: Path, *arguments: object, name: str = "run", by: Callable[..., Ended] = bench) -> Run:
    """Run it, with short rounds unless told otherwise, and read its JSON."""
    file = folder / f"{name}.json"
    short = ["--rounds", "1", "--seconds", "0.1", "--warm-up", "0.05", "--clients", "1", "--generators", "python"]
    ended = by(*short, *arguments, "--json", file)
    assert ended.status == 0, ended.errors
    return read_json(file)

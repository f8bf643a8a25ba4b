"""``policybridge bench`` as its users run it."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from policybridge_bench.results import Run, read_json
from tests.conftest import command

CACHE = Path(__file__).parents[2] / ".cache" / "bench"


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    status: int
    output: str
    errors: str


def bench(*arguments: object, env: Mapping[str, str] | None = None) -> Ended:
    """Run it to its end."""
    words = command("bench", *arguments, "--cache", CACHE)
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})
    return Ended(done.returncode, done.stdout, done.stderr)


def measured(folder: Path, *arguments: object, name: str = "run") -> Run:
    """Run it, with short rounds unless told otherwise, and read its JSON."""
    file = folder / f"{name}.json"
    short = ["--rounds", "1", "--seconds", "0.1", "--warm-up", "0.05", "--clients", "1", "--generators", "python"]
    ended = bench(*short, *arguments, "--json", file)
    assert ended.status == 0, ended.errors
    return read_json(file)

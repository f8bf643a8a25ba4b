"""Running the launcher, and ``policybridge run`` beside it."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import command

HOST = command("run")


@dataclass(frozen=True)
class Ran:
    """The result of one run."""

    status: int
    said: str
    stats: Any
    output: bytes | None


def run(
    host: Sequence[str],
    options: Sequence[str],
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    given: bytes = b"",
) -> Ran:
    """Run a host with a statistics file; read and remove the files that it and the compiler wrote.

    ``given`` is its standard input.
    """
    arguments = [*host, "--stats", "stats.json", *options, "--", *words]
    done = subprocess.run(arguments, capture_output=True, check=False, input=given, env=environment)
    stats = _take("stats.json")
    said = (done.stdout + done.stderr).decode().replace("policybridge run", "policybridge-run")
    return Ran(done.returncode, said, json.loads(stats) if stats else None, _take("made.o"))


def _take(name: str) -> bytes | None:
    path = Path(name)
    if not path.exists():
        return None
    content = path.read_bytes()
    path.unlink()
    return content


def lasting(stats: Any) -> Any:
    """Give the part of the statistics that two runs share: the number of sessions, and whether there are times."""
    if stats is None:
        return None
    times = {"latency_us": stats["latency_us"] and sorted(stats["latency_us"]), "seconds": stats["seconds"] > 0}
    return {**stats, **times, "sessions": len(stats["sessions"])}

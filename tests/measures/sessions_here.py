"""Time whole sessions from C++ over the socket, decided by the server and by the form: where does a form begin to pay?

    python -m tests.measures.sessions_here [--rounds N] [--policy NAME] [--no-forms] [--json FILE]

A client opens a session, makes its decisions, and reports its outcome to a server with a ledger. The ways take turns:
by the server (`there`), by the form in the user's cache (`auto`), and by a form that comes for each session, because
there is no such cache (`uncached`). Prints the median of a session, and the client's processor time, in microseconds.
Needs cmake, ninja and g++.
"""

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.conftest import running_server
from tests.measures.decisions_here import built, write_load
from tests.server.ledger.asking import await_forms

DECISIONS: Final = (1, 8, 32, 128)
SESSIONS: Final = 200


def main() -> None:
    """Build the client, measure, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policy", default="inliner")
    parser.add_argument("--no-forms", action="store_true", help="the server gives none")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    options = ["--no-forms"] if arguments.no_forms else []
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        client = built(folder / "build", "sessions_here")
        write_load(folder)
        with running_server(None, folder, "--ledger", folder / "ledger.db", *options) as server:
            if not arguments.no_forms:
                await_forms(server.socket, arguments.policy)
            words = [client, server.socket, arguments.policy]
            figures = _measured(list(map(str, words)), folder, arguments.rounds)
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n")


def _measured(words: list[str], folder: Path, rounds: int) -> Mapping[str, float]:
    ways = {
        "there": ("there", "/"),
        "auto": ("auto", str(folder / "cache")),
        "uncached": ("auto", str(folder / "header" / "cache")),
    }
    walls: dict[str, list[float]] = {}
    for _ in range(rounds):
        for count in DECISIONS:
            for way, (place, cache) in ways.items():
                last = [place, str(folder / "header"), str(folder / "rows"), str(count), str(SESSIONS)]
                environment = {**os.environ, "XDG_CACHE_HOME": cache}
                told = subprocess.run([*words, *last], env=environment, check=True, capture_output=True, text=True)
                wall, processor = map(float, told.stdout.split())
                walls.setdefault(f"{count}.{way}.wall_us", []).append(wall / 1e3)
                walls.setdefault(f"{count}.{way}.processor_us", []).append(processor * 1e6)
    return {key: round(statistics.median(each), 1) for key, each in walls.items()}


if __name__ == "__main__":
    main()

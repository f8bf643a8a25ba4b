"""Kill the server while compilers decide by the form of its version: each compile must end with the version's object.

    python -m tests.measures.kills_here [--kills N]

A compile whose server was killed before it had a session must end with LLVM's own object. All servers write one ledger.
Compiles with a living server send the records that the killed ones have not acknowledged: one compile after every
twenty kills, and one after the last. Then the ledger must hold every session that the compilers had opened, with all
decisions of the undisturbed one. Needs cmake, ninja, g++, clang-22 and LLVM's headers. The exit status is 1 if an
object is another one, or a session is not whole.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_core.errors import NotFoundError
from policybridge_server.ledger.reader import LedgerReader
from tests.conftest import running_server
from tests.native.conftest import built
from tests.native.llvm.plugins import emit_demo
from tests.native.llvm.stores import Made, Tuner
from tests.server.ledger.asking import await_forms

MAJOR = "22"
MODULE = "libunwind/src/libunwind.cpp"

_AFTER: Final = 20
"""Kills after which a compile with a living server sends what waits: it sends at most 32 records."""


def kill_servers(tuner: Tuner, folder: Path, kills: int) -> Counter[str]:
    """Kill so many servers, at moments that are spread over a compile.

    Returns:
        How many compiles ended with whose object (``the version's``, ``LLVM's``, ``wrong``), how many of their sessions
        the ledger holds (``whole``, ``not whole``, and of the whole ones those that it calls ``interrupted``), how many
        records were ``sent``, and how many files are ``left`` in the spool.

    """
    module = emit_demo(MAJOR, MODULE, folder)
    plain = tuner.plain(module, "-x", "ir", "-Oz")
    found, sessions = Counter[str](), list[str]()
    with running_server(None, folder, "--ledger", folder / "ledger.db") as server:
        await_forms(server.socket, "size")
        undisturbed = _compiled(tuner, module, server.socket)
        decided, told = undisturbed.output, _sessions(undisturbed)
        begun = time.monotonic()
        _compiled(tuner, module, server.socket)
        seconds = time.monotonic() - begun
    for number in range(kills):
        with running_server(None, folder, "--ledger", folder / "ledger.db") as server:
            await_forms(server.socket, "size")
            killer = threading.Timer(seconds * number / kills, server.kill)
            killer.start()
            made = _compiled(tuner, module, server.socket)
            killer.join()
        opened = _sessions(made)
        sessions += opened
        whose = "the version's" if opened else "LLVM's"
        expected = decided if opened else plain
        found[whose if made.status == 0 and made.output == expected else "wrong"] += 1
        found["sent"] += _sent(made)
        if number % _AFTER == _AFTER - 1 or number == kills - 1:
            with running_server(None, folder, "--ledger", folder / "ledger.db") as server:
                await_forms(server.socket, "size")
                found["sent"] += _sent(_compiled(tuner, module, server.socket))
    found["left"] = len(list(_spool().iterdir())) if _spool().exists() else 0
    _count_whole(found, folder / "ledger.db", told, sessions)
    return found


def _count_whole(found: Counter[str], ledger: Path, undisturbed: Sequence[str], sessions: Sequence[str]) -> None:
    with LedgerReader(ledger) as reader:
        expected = [_decisions(reader, session) for session in undisturbed]
        for session in sessions:
            try:
                whole = _decisions(reader, session) in expected
            except NotFoundError:
                whole = False
            found["whole" if whole else "not whole"] += 1
            found["interrupted"] += whole and reader.session(session).interrupted


def _decisions(reader: LedgerReader, session: str) -> list[tuple[str, str, bytes, bytes]]:
    """Give each decision of a session: its kind, its context, the observation and the advice."""
    return [
        (batch.signature.advice.name, context, observation.tobytes(), advice.tobytes())
        for batch in reader.trajectory(reader.session(session)).batches
        for context, observation, advice in zip(batch.contexts, batch.observations, batch.advices, strict=True)
    ]


def _spool() -> Path:
    return Path(os.environ["XDG_CACHE_HOME"]) / "policybridge" / "spool"


def _told(made: Made) -> dict[str, object]:
    read: dict[str, object] = json.loads((made.folder / "stats.json").read_text())
    return read


def _sessions(made: Made) -> list[str]:
    sessions = _told(made)["sessions"]
    assert isinstance(sessions, list)
    return sessions


def _sent(made: Made) -> int:
    records = _told(made).get("records", {"sent": 0})
    assert isinstance(records, dict)
    return int(records["sent"])


def _compiled(tuner: Tuner, module: Path, address: str) -> Made:
    settings = {"policy": "size", "evaluate": "here", "retry_after": "0"}
    return tuner.compile(module, "-x", "ir", "-Oz", server=address, **settings)


def main() -> int:
    """Kill, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="pb-") as name:
        os.environ["XDG_CACHE_HOME"] = name
        found = kill_servers(Tuner.of(built, MAJOR, Path(name)), Path(name), arguments.kills)
    print(", ".join(f"{whose}: {count}" for whose, count in sorted(found.items())))
    return 1 if found["wrong"] or found["not whole"] or found["left"] else 0


if __name__ == "__main__":
    sys.exit(main())

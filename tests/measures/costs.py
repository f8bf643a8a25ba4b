"""``python -m tests.measures.costs``: what sessions and decisions cost a server, for the plan in docs/benchmarks.md.

A server with the bundled policy and a ledger, and one client over its Unix socket, as a compiler of a build asks: many
sessions of one decision, some sessions of many, and sessions that the client decides by the policy's form.
"""

import argparse
import json
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import psutil

from policybridge_bench.processes import wait_ready
from policybridge_client import open_runner
from policybridge_client.connection import connect
from policybridge_client.contract import FormSession
from policybridge_core.errors import PreconditionError
from policybridge_forms import Form
from policybridge_serdes import Outcome, PolicyReference, SessionOptions, Signature
from policybridge_serdes.interactive import context_line, decided_lines, end_line, header_line, outcome_line
from policybridge_train.tasks.inline import NUMBERS, InlineForSize

_POLICY: Final = "inliner"
_MODULE: Final = 281
"""Decisions of a module, as in docs/benchmarks.md."""

_EVALUATES: Final = SessionOptions(evaluates=True)
_CONTEXT: Final = "module.c"
_HELLO: Final = (
    json.dumps(
        {
            "policybridge": 1,
            "policy": _POLICY,
            "options": {},
            "labels": {"level": "Os", "phase": "compile", "target": "x86_64"},
            "context": _CONTEXT,
            "evaluate": "here",
        }
    )
    + "\n"
).encode()
"""As LLVM's plugin begins a session."""
_OUTCOME: Final = Outcome(
    {
        "asked": _MODULE,
        "defaults": 0,
        "limited": 0,
        "inlined": 97,
        "instructions_before": 9130,
        "instructions_after": 8402,
        "seconds": 0.131,
    },
    "ok",
)
"""As it ends one."""

_REPORT_AT: Final = 32 << 10
"""Bytes of decisions that the C++ library reports together."""

_SETTLED: Final = 2.0
"""Seconds until the ledger has written its queue."""


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.measures.costs", description=__doc__)
    parser.add_argument("--sessions", type=int, default=1000, help="of one decision each (default: %(default)s)")
    parser.add_argument("--decisions", type=int, default=50_000, help="in ten sessions (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="policybridge-bench-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "policybridge_client.cli", "serve", "--demo", "--socket", str(folder / "s")]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, "--ledger", str(folder / "ledger.db")], stdout=subprocess.PIPE, stderr=log
            )
        try:
            wait_ready(process, folder / "log")
            figures = _measure(folder, psutil.Process(process.pid), asked.sessions, asked.decisions)
        finally:
            process.terminate()
            process.wait()
    if asked.json:
        asked.json.write_text(json.dumps(figures), encoding="utf-8")
    return 0


def _measure(folder: Path, server: psutil.Process, sessions: int, decisions: int) -> dict[str, float]:
    # A server that has just started makes the forms of its policies, which these wait for.
    _report(folder, 20)
    _ask(folder, 20, 1)
    short, kept = _spent(lambda: _ask(folder, sessions, 1), folder, server, sessions)
    print(f"a session of one decision: {short * 1e3:.3f} ms of the server's processor time, {kept:.0f} bytes of ledger")
    each = max(1, decisions // 10)
    long, bytes_ = _spent(lambda: _ask(folder, 10, each), folder, server, 10)
    print(f"a decision, one client: {long / each * 1e6:.1f} µs, {bytes_ / each:.0f} bytes of ledger")
    own, stored = _spent(lambda: _report(folder, sessions), folder, server, sessions)
    print(
        f"a session of {_MODULE} decisions that the client makes: {own * 1e3:.3f} ms of the server's processor time, "
        f"{stored:.0f} bytes of ledger"
    )
    return {
        "short": short,
        "kept": kept,
        "decision": long / each,
        "decision_bytes": bytes_ / each,
        "own": own,
        "stored": stored,
    }


def _spent(asking: Callable[[], None], folder: Path, server: psutil.Process, sessions: int) -> tuple[float, float]:
    """Give the server's processor seconds, and the bytes of its ledger, for each session."""
    before, size = sum(server.cpu_times()[:2]), _size(folder)
    asking()
    time.sleep(_SETTLED)
    return (sum(server.cpu_times()[:2]) - before) / sessions, (_size(folder) - size) / sessions


def _size(folder: Path) -> int:
    """Give the bytes of the ledger's pages; the log, in which some of them still are, is used again and again."""
    with closing(sqlite3.connect(folder / "ledger.db")) as ledger:
        pages, size = (ledger.execute(f"PRAGMA page_{what}").fetchone()[0] for what in ("count", "size"))
        return int(pages * size)


def _ask(folder: Path, sessions: int, decisions: int) -> None:
    own = {"features": InlineForSize.features, "advice": InlineForSize.advice, "policy": _POLICY}
    for _ in range(sessions):
        with open_runner(f"socket:{folder / 's'}", **own) as runner:  # type: ignore[arg-type]
            for number in range(decisions):
                for place, name in enumerate(NUMBERS):
                    runner[name] = number * place % 97
                runner.evaluate()


def _report(folder: Path, sessions: int) -> None:
    """Open, report and end sessions with the bytes of the C++ library, and wait for each acknowledgement as it does."""
    signature = Signature.of(InlineForSize.features, InlineForSize.advice)
    drawn = np.random.default_rng(1).poisson(3, (_MODULE, len(InlineForSize.features)))
    with connect(f"socket:{folder / 's'}").open(PolicyReference(_POLICY), signature, _EVALUATES) as session:
        if not (isinstance(session, FormSession) and session.forms):
            raise PreconditionError(f"{_POLICY} has no form; the measure needs one")
        advices = _advices(session, drawn)
    messages = _messages(drawn.astype("<i8"), np.frombuffer(advices, "<i8"))
    # The library sends reports when they are 64 KiB, and the last ones with the outcome and the end.
    early = header_line(signature) + context_line(_CONTEXT) + b"".join(messages[:2])
    late = b"".join(messages[2:]) + outcome_line(_OUTCOME) + end_line()
    for _ in range(sessions):
        with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as answers:
            connection.connect(str(folder / "s"))
            connection.sendall(_HELLO)
            _check("session", answers.readline())
            connection.sendall(early)
            connection.sendall(late)
            _check("recorded", answers.readline())
            _check("recorded", answers.readline())


def _messages(observations: npt.NDArray[np.int64], advices: npt.NDArray[np.int64]) -> list[bytes]:
    each = -(-_REPORT_AT // (observations.itemsize * (observations.shape[1] + 1)))
    parts = [slice(first, first + each) for first in range(0, len(advices), each)]
    return [
        decided_lines(
            len(advices[part]), 1300 * len(advices[part]), observations[part].tobytes() + advices[part].tobytes()
        )
        for part in parts
    ]


def _check(key: str, answer: bytes) -> None:
    # A status byte is before each answer but the first.
    if not json.loads(answer.lstrip(b"\0")).get(key):
        raise PreconditionError(f"the server answers {answer.decode(errors='replace')}")


def _advices(session: FormSession, drawn: npt.NDArray[np.int64]) -> bytes:
    """Decide as a client does: the server makes some decisions again, and tells of others than its own."""
    (offered,) = session.forms.values()
    form = Form.read(session.form(offered))
    columns = {spec.name: column for spec, column in zip(InlineForSize.features, drawn.T, strict=True)}
    records = np.zeros(len(drawn), form.record)
    for name in form.record.names or ():
        records[name] = columns[name].reshape(records[name].shape)
    advices, statuses = form.decide(records)
    if statuses.any():
        raise PreconditionError(f"{_POLICY} does not decide on the measure's observations")
    return advices.tobytes()


if __name__ == "__main__":
    sys.exit(main())

"""One measurement of a case: start the clients, let them begin together, and read their reports."""

import contextlib
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from policybridge_bench.load import Latencies, Load, Report, read_report
from policybridge_bench.processes import module, running, usage, wait_ready
from policybridge_bench.results import Round, summary
from policybridge_core.errors import PolicyFailedError

Command = Callable[[Load], list[str]]
"""Gives the command of a client that does a load."""

Prepare = Callable[[Path, Path], Command]
"""Prepares a load generator, given the folder for builds and an empty one for its files.

Raises:
    PreconditionError: this machine lacks something; the message has the remedy.

"""


def command(load: Load) -> list[str]:
    """Give the command of a client in Python."""
    return module(load.program, msgspec.json.encode(load).decode())


def _wire(load: Load) -> list[str]:
    return command(msgspec.structs.replace(load, kind="wire"))


GENERATORS: Final[Mapping[str, Prepare]] = {"wire": lambda *_: _wire, "python": lambda *_: command}
"""The load generators, the first that supports a way goes first."""


def drive(
    command: Sequence[str],
    clients: int,
    server: int | None = None,
    *,
    during: Callable[[], None] = lambda: None,
    look: Callable[[Report], None] = lambda _: None,
) -> Round:
    """Let clients ask at once, each in a process of its own.

    Args:
        command: of a client.
        clients: number of clients.
        server: process id of the server, to measure its CPU and memory.
        during: called once the clients ask.
        look: called with the report of each client.

    Raises:
        PolicyFailedError: a client failed; its message is on standard error.

    """
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(running(command, talk=True)) for _ in range(clients)]
        for client in started:
            wait_ready(client)
        before = None if server is None else usage(server)
        for client in started:
            _go(client)
        during()
        seen = [_result(client) for client in started]
        after = None if server is None else usage(server)
    for report, _ in seen:
        look(report)
    result = _round(seen)
    if before is None or after is None:
        return result
    cpu = (after.cpu - before.cpu) / result.count * 1e6
    return msgspec.structs.replace(result, server_cpu=cpu, server_rss=after.rss)


def _go(client: "subprocess.Popen[bytes]") -> None:
    if client.stdin is not None:
        client.stdin.write(b"\n")
        client.stdin.flush()


def _result(client: "subprocess.Popen[bytes]") -> tuple[Report, Latencies]:
    output, _ = client.communicate()
    if client.returncode:
        raise PolicyFailedError(f"a client ended with {client.returncode}")
    return read_report(output)


def _round(seen: Sequence[tuple[Report, Latencies]]) -> Round:
    reports = [report for report, _ in seen]
    rate = sum(report.count / report.seconds for report in reports)
    count = max(1, sum(report.count for report in reports))
    return summary([latencies for _, latencies in seen], rate, sum(report.cpu for report in reports) / count * 1e6)

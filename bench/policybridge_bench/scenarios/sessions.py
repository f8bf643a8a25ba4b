"""What an open session costs the server in memory."""

import argparse
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from policybridge_bench.contenders.contract import Route, Setting
from policybridge_bench.contenders.own import PolicyBridge
from policybridge_bench.options import words
from policybridge_bench.payloads import payload
from policybridge_bench.processes import Usages
from policybridge_client.connection import ClientSession, Connection, connect
from policybridge_core.errors import PreconditionError
from policybridge_serdes import PolicyReference, SessionOptions

_ASKED = 2


def run(arguments: argparse.Namespace) -> int:
    """Open so many sessions on each transport, let each ask, and look at the server's memory; then close them."""
    rows: dict[str, dict[str, float]] = {}
    ways = words(arguments.ways or "socket,grpc")
    with TemporaryDirectory(prefix="pb-") as folder:
        setting = Setting(Path(folder), arguments.cache, ["inliner"])
        with PolicyBridge(arguments.python, options=arguments.serve_option).serve(setting) as serving:
            for route in serving.routes:
                if route.way in ways and serving.pid is not None:
                    rows[route.way] = _measure(route, Usages(serving.pid), arguments.count)
    if not rows:
        raise PreconditionError(f"no session goes by {', '.join(ways)}; there are socket, grpc, grpc-unix")
    for way, row in rows.items():
        kilobytes = {name: row[name] / 1e3 for name in ("opened", "asked", "closed")}
        print(
            f"{way:10} {arguments.count} sessions: {kilobytes['opened']:6.1f} KB each when opened, "
            f"{kilobytes['asked']:6.1f} KB once they asked, {kilobytes['closed']:6.1f} KB left when closed"
        )
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1))
    return 0


def _measure(route: Route, usages: Usages, count: int) -> dict[str, float]:
    # The first sessions bring what all later ones share.
    _close(_open(route, _ASKED, asks=True))
    before = usages.now().rss
    sessions = _open(route, count, asks=False)
    opened = usages.now().rss
    observation = payload(route.load.payload).observations()[0]
    for _, session in sessions:
        for _ in range(_ASKED):
            session.evaluate(observation)
    asked = usages.now().rss
    _close(sessions)
    closed = usages.now().rss
    return {name: (rss - before) / count for name, rss in (("opened", opened), ("asked", asked), ("closed", closed))}


Open = list[tuple[Connection, ClientSession]]


def _open(route: Route, count: int, *, asks: bool) -> Open:
    asking = payload(route.load.payload)
    opened: Open = []
    with ExitStack() as stack:
        # Each has a connection of its own, as a compiler's has.
        for _ in range(count):
            connection = connect(route.load.address, timeout=30)
            stack.callback(connection.close)
            session = connection.open(PolicyReference(route.load.policy), asking.signature, SessionOptions())
            if asks:
                session.evaluate(asking.observations()[0])
            opened.append((connection, session))
        stack.pop_all()
    return opened


def _close(sessions: Open) -> None:
    for connection, session in sessions:
        session.close()
        connection.close()

"""``python -m tests.replicas``: publications under load, and kills; then check every publication."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from policybridge_bench.processes import module
from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import PolicyReference
from tests.replicas.asking import POLICY, SessionSeen
from tests.replicas.servers import Server, leader, replicas
from tests.replicas.watching import Watch


@dataclass
class Seen:
    """What clients and publishers saw.

    Attributes:
        sessions: that ended.
        decisions: of all of them.
        interrupted: sessions whose server was killed.
        numbers: of each version, the number that it adds; a version is one number, on every server.
        digests: of each version.
        published: versions that were acknowledged.
        faults: in words.

    """

    sessions: int = 0
    decisions: int = 0
    interrupted: int = 0
    numbers: dict[int, int] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    published: dict[int, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def take(self, session: SessionSeen) -> None:
        """Compare a session with all others."""
        self.sessions += 1
        self.decisions += session.decisions
        self.interrupted += bool(session.error)
        where = f"a session of {session.decisions} decisions on server {session.server}"
        if len(session.numbers) > 1:
            self.faults.append(f"{where} was answered by several versions: {session.numbers}")
        for number in session.numbers:
            if self.numbers.setdefault(session.version, number) != number:
                self.faults.append(f"{where}: version {session.version} added {number}")
        if self.digests.setdefault(session.version, session.digest) != session.digest:
            self.faults.append(f"{where}: version {session.version} has another digest")


@contextmanager
def asked(servers: Sequence[Server], clients: int, decisions: int, seen: Seen) -> Iterator[None]:
    """Let clients ask each of the servers in the block."""
    commands = [
        module("tests.replicas.asking", number, server.socket, decisions)
        for number, server in enumerate(servers)
        for _ in range(clients)
    ]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    lock = threading.Lock()

    def read(process: "subprocess.Popen[str]") -> None:
        for line in process.stdout or ():
            with lock:
                seen.take(msgspec.json.decode(line, type=SessionSeen))

    threads = [threading.Thread(target=read, args=(process,), daemon=True) for process in running]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def publish(client: RepositoryClient, number: int, seen: Seen) -> None:
    """Publish a version that adds ``number``."""
    version = client.publish_weights(PolicyReference(POLICY), {"own": np.array([[number]], np.int64)})
    seen.published[version.version] = number
    seen.digests.setdefault(version.version, version.digest)


def killed(servers: Sequence[Server], kills: int, seconds: float, chance: random.Random) -> None:
    """Kill servers at random moments; start each again."""
    for _ in range(kills):
        time.sleep(chance.uniform(0, 2 * seconds))
        server = chance.choice(servers)
        server.kill()
        server.start()


def check(leading: Server, others: Sequence[Server], seen: Seen) -> None:
    """Compare the servers' final versions with each other and with the acknowledged publications."""
    with RepositoryClient(leading.grpc) as client:
        waited = client.replicas("all", 60)
        for replica in waited.behind:
            if replica.name != "watch":
                seen.faults.append(f"after all: {replica}")
        has = {each.version: each.digest for each in client.show(POLICY).versions}
    seen.faults += [f"version {each} was acknowledged and is missing" for each in seen.published if each not in has]
    for version, digest in seen.digests.items():
        if has.get(version, digest) != digest:
            seen.faults.append(f"version {version} is another one than the one that answered")
    for version, number in seen.published.items():
        if seen.numbers.get(version, number) != number:
            seen.faults.append(f"version {version} was published with {number}, and adds {seen.numbers[version]}")
    for server in others:
        with RepositoryClient(server.grpc) as client:
            theirs = {each.version: each.digest for each in client.show(POLICY).versions if not each.error}
        if theirs != has:
            seen.faults.append(f"{server.name} has {len(theirs)} versions, and the leader {len(has)}")


def main() -> int:
    """Run; the exit status is 1 if something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--publications", type=int, default=200)
    parser.add_argument("--every", type=float, default=0.25, metavar="SECONDS", help="between two publications")
    parser.add_argument("--clients", type=int, default=1, help="of each server")
    parser.add_argument("--decisions", type=int, default=200, help="of each session")
    parser.add_argument("--kills", type=int, default=0, help="of leader and replicas, at random moments")
    parser.add_argument("--between", type=float, default=3.0, metavar="SECONDS", help="between two kills, on average")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    seen, begun = Seen(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pb-") as name, ExitStack() as stack:
        leading = leader(Path(name))
        others = replicas(Path(name), leading, arguments.replicas)
        for server in (leading, *others):
            server.start()
            stack.callback(server.kill)
        watch = Watch([server.grpc for server in (leading, *others)])
        stack.callback(watch.close)
        client = stack.enter_context(RepositoryClient(leading.grpc))
        client.replicas("all", 60)
        with asked([leading, *others], arguments.clients, arguments.decisions, seen):
            _wait_for_load(seen, 1 + arguments.replicas)
            _run(arguments, client, [leading, *others], seen)
            load = os.getloadavg()[0]
        check(leading, others, seen)
        lags = watch.lags()
    _print(seen, lags, load, time.monotonic() - begun, arguments)
    return int(bool(seen.faults))


def _wait_for_load(seen: Seen, sessions: int) -> None:
    """Wait until the clients ask."""
    while seen.sessions < sessions:
        time.sleep(0.05)


def _run(arguments: argparse.Namespace, client: RepositoryClient, servers: Sequence[Server], seen: Seen) -> None:
    chance = random.Random(arguments.seed)
    killing = threading.Thread(target=killed, args=(servers, arguments.kills, arguments.between, chance))
    killing.start()
    number = 1
    while len(seen.published) < arguments.publications or killing.is_alive():
        next_one = time.monotonic() + arguments.every
        number += 1
        try:
            publish(client, number, seen)
        except PolicyBridgeError as error:
            if not arguments.kills:
                seen.faults.append(f"a publication failed: {error}")
        time.sleep(max(0.0, next_one - time.monotonic()))
    killing.join()


def _print(seen: Seen, lags: Sequence[float], load: float, seconds: float, arguments: argparse.Namespace) -> None:
    figures = {
        "seconds": round(seconds, 1),
        "replicas": arguments.replicas,
        "publications": len(seen.published),
        "versions that answered": len(seen.numbers),
        "sessions": seen.sessions,
        "decisions": seen.decisions,
        "sessions of killed servers": seen.interrupted,
        "kills": arguments.kills,
        "load of the machine": round(load, 1),
        "cores": os.cpu_count(),
        "faults": seen.faults[:20],
    }
    if not arguments.kills and lags:
        told = {f"p{each}": round(1000 * float(np.percentile(lags, each)), 1) for each in (50, 90, 99, 100)}
        figures["milliseconds that a version comes later to a replica than to the leader"] = told
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")

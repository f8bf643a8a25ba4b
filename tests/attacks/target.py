"""The server that the attacks on doors meet, and a client of it on the Unix socket beside them."""

import contextlib
import multiprocessing
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import grpc

from policybridge_bench.contenders.own import serve_command
from policybridge_bench.network import write_network
from policybridge_bench.processes import server
from tests.attacks.measure import POLICY
from tests.certificates import Authority

HELLO: Final = b'{"policybridge":1,"policy":"echo"}\n'
VARIES: Final = (
    b'{"features":[{"name":"x","type":"int64_t","shape":[-1]}],'
    b'"advice":{"name":"advice","type":"int64_t","shape":[-1]}}\n'
)
OBSERVATION: Final = b'{"observation":0}\n' + bytes(8) + b"\n"

ADVICE_PATH: Final = "/attacked.Advisor/getAdvice"
_PROTO: Final = """syntax = "proto3";
package attacked;
service Advisor { rpc getAdvice(Question) returns (Answer); }
message Question { repeated int64 x = 1; }
message Answer { repeated int64 action = 1; }
"""

_ADVICE: Final = 'advice = {name = "advice", type = "int64_t", shape = [1]}\n'

Times = list[tuple[float, float]]


@dataclass(frozen=True)
class Target:
    """A server that is attacked.

    Attributes:
        pid: of its process.
        addresses: of its doors, by their names.
        stack: closes the connections of the attack when it ends.
        authority: the certificate that the doors on TCP have been issued by; ``None``: they have no TLS.

    """

    pid: int
    addresses: dict[str, str]
    stack: contextlib.ExitStack
    authority: Path | None = None

    def connect(self, door: str) -> socket.socket:
        """Connect to a door until the attack ends; a port with TLS gets no handshake."""
        address = self.addresses[door]
        host, _, port = address.rpartition(":")
        made = socket.socket(socket.AF_UNIX if door == "socket" else socket.AF_INET)
        self.stack.enter_context(contextlib.closing(made))
        made.settimeout(10)
        made.connect(address if door == "socket" else (host, int(port)))
        return made

    def send(self, door: str, *parts: bytes) -> socket.socket:
        """Connect, and send as much as the server takes."""
        made = self.connect(door)
        with contextlib.suppress(OSError):
            for part in parts:
                made.sendall(part)
        return made

    def asked(self, door: str, *parts: bytes) -> None:
        """Send, and wait for the first bytes of an answer."""
        with contextlib.suppress(OSError), contextlib.closing(self.send(door, *parts)) as made:
            made.recv(1 << 16)

    def handshake(self, door: str) -> None:
        """Do a whole handshake of TLS, and leave."""
        context = ssl.create_default_context(cafile=self.authority)
        context.set_alpn_protocols(["h2", "http/1.1"])
        with contextlib.suppress(OSError), contextlib.closing(self.connect(door)) as plain:
            context.wrap_socket(plain, server_hostname="localhost").close()

    @contextlib.contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        """Give a gRPC channel of its own."""
        given = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(self.addresses["grpc"], given) as channel:
            yield channel

    def call(self, work: Callable[[grpc.Channel], Any]) -> None:
        """Run ``work`` with a gRPC channel of its own; the status of its calls does not matter."""
        with self.channel() as channel, contextlib.suppress(grpc.RpcError):
            work(channel)


def repeat(count: int, work: Callable[[], object]) -> None:
    """Call ``work`` so often."""
    for _ in range(count):
        work()


def together(*works: Callable[[], object]) -> None:
    """Call each of ``works`` in a thread of its own, and wait for all."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def until(seconds: float, work: Callable[[], object]) -> Callable[[], None]:
    """Give a function that calls ``work`` again and again for so many seconds."""

    def run() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            work()

    return run


@contextlib.contextmanager
def served(folder: Path, *, tls: bool) -> Iterator[Target]:
    """Serve a policy that echoes, and one with a form, on all doors, with a ledger."""
    repository, protos, config = folder / "policies", folder / "protos", folder / "config.toml"
    first = POLICY.replace('["x"]', '["x"][:1]')
    for name, policy, more in (("echo", POLICY, ""), ("first", first, _ADVICE)):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "policy.toml").write_text(f'backend = "python"\ninline = true\n{more}')
        (repository / name / "1" / "policy.py").write_text(policy)
    write_network(repository, "network")
    protos.mkdir()
    (protos / "attacked.proto").write_text(_PROTO)
    config.write_text(f'[mlbridge]\nprotos = ["{protos}"]\npolicy = "first"\n')
    command, env = serve_command(sys.executable)
    command += ["--repository", str(repository), "--allow-python", "--allow-publish", "--config", str(config)]
    command += ["--ledger", str(folder / "ledger.db"), "--socket", str(folder / "s")]
    authority = None
    if tls:
        issued = Authority(folder / "authority").issue("server")
        authority = folder / "authority" / "ca.pem"
        command += ["--tls-certificate", str(issued.certificate), "--tls-key", str(issued.key)]
    command += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with server(command, env=env, log=folder / "log") as started, contextlib.ExitStack() as stack:
        found = (each.partition(":") for each in started.addresses)
        # With TLS: grpcs and https.
        addresses = {door.removesuffix("s"): address for door, _, address in found}
        yield Target(started.pid, addresses, stack, authority)


@contextlib.contextmanager
def asking(path: str) -> Iterator[Callable[[], Times]]:
    """Ask beside the block, in a process of its own; the result, called, gives begin and end of each wait so far."""
    processes = multiprocessing.get_context("spawn")
    ready, over, told = processes.Event(), processes.Event(), processes.Queue()
    beside = processes.Process(target=_ask, args=(path, ready, over, told))
    beside.start()
    ready.wait()

    def times() -> Times:
        over.set()
        waits: Times = told.get(timeout=60)
        return waits

    try:
        yield times
    finally:
        over.set()
        beside.join()


def _ask(path: str, ready: Event, over: Event, told: "Queue[Times]") -> None:
    waits = []
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as beside:
        beside.connect(path)
        answers = beside.makefile("rb")
        beside.sendall(HELLO)
        answers.readline()
        beside.sendall(VARIES.replace(b"-1", b"1"))
        ready.set()
        while not over.wait(1e-3):
            begun = time.monotonic()
            beside.sendall(OBSERVATION)
            answers.read(9)
            waits.append((begun, time.monotonic()))
    told.put(waits)

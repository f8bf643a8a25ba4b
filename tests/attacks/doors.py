"""Attacks on every door of one server: the longest wait of a session on the Unix socket beside, and the memory.

Usage: ``python -m tests.attacks.doors [NAME…]``. The exit status is 1 if a row breaks a promise: no decision beside
waits for more than 100 ms, and the server needs at most 150 MB more than before the attack. `README.md` beside this
file has a row for each door and a column for each kind, and the reasons of the cells without a driver.
"""

import contextlib
import gzip
import json
import multiprocessing
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from rich.console import Console
from rich.table import Table

from policybridge.inference import inference_service_pb2 as inference
from policybridge.inference.inference_service_pb2_grpc import GRPCInferenceServiceStub
from policybridge.v1 import policy_service_pb2, replication_service_pb2, repository_service_pb2
from policybridge.v1.replication_service_pb2_grpc import ReplicationServiceStub
from policybridge.v1.repository_service_pb2_grpc import RepositoryServiceStub
from policybridge_bench.contenders.own import serve_command
from policybridge_bench.processes import server
from tests.attacks.measure import POLICY, Memory

_STALL: Final = 0.1
_MEMORY: Final = 150e6
_BEFORE: Final = 3.0
_AFTER: Final = 4.0
_LARGE: Final = 60 << 20
_HELLO: Final = b'{"policybridge":1,"policy":"echo"}\n'
_VARIES: Final = (
    b'{"features":[{"name":"x","type":"int64_t","shape":[-1]}],'
    b'"advice":{"name":"advice","type":"int64_t","shape":[-1]}}\n'
)
_INFER: Final = "POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: 9\r\n"


class Target:
    """The server that is attacked: its doors by their names, and what is connected to it until the attack ends."""

    def __init__(self, addresses: Mapping[str, str], stack: contextlib.ExitStack) -> None:
        self._addresses, self._stack = addresses, stack

    def connect(self, door: str) -> socket.socket:
        address = self._addresses[door]
        host, _, port = address.rpartition(":")
        made = socket.socket(socket.AF_UNIX if door == "socket" else socket.AF_INET)
        self._stack.enter_context(contextlib.closing(made))
        made.settimeout(10)
        made.connect(address if door == "socket" else (host, int(port)))
        return made

    def send(self, door: str, *parts: bytes) -> socket.socket:
        made = self.connect(door)
        with contextlib.suppress(OSError):
            for part in parts:
                made.sendall(part)
        return made

    def asked(self, door: str, *parts: bytes) -> None:
        with contextlib.suppress(OSError):
            self.send(door, *parts).recv(1 << 16)

    def call(self, work: Callable[[grpc.Channel], Any]) -> None:
        with grpc.insecure_channel(self._addresses["grpc"]) as channel, contextlib.suppress(grpc.RpcError):
            work(channel)


def _body(body: bytes, *headers: str) -> bytes:
    head = "".join(f"{header}\r\n" for header in headers)
    return f"{_INFER}{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _bomb() -> bytes:
    return _body(gzip.compress(bytes(400 << 20)), "Content-Encoding: gzip")


def _repeat(count: int, work: Callable[[], object]) -> None:
    for _ in range(count):
        work()


def _together(count: int, work: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _http_two(target: Target) -> None:
    bomb = _bomb()
    _together(10, lambda: target.asked("http", bomb))


def _http_size(target: Target) -> None:
    for _ in range(4):
        target.send("http", _body(bytes(_LARGE))[:-1])


def _sessions(target: Target, count: int, *rest: bytes) -> None:
    for _ in range(count):
        target.send("socket", _HELLO, _VARIES, *rest)


def _publish(config: str) -> Callable[[Target], None]:
    header = repository_service_pb2.PublishHeader(policy="new", config=config)
    request = repository_service_pb2.PublishRequest(header=header)
    return lambda target: target.call(lambda channel: RepositoryServiceStub(channel).Publish(iter([request])))


def _weights(target: Target) -> None:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"t{number}": entry for number in range(600_000)}).encode()
    data = len(header).to_bytes(8, "little") + header
    base = policy_service_pb2.PolicyReference(name="echo")
    kind = repository_service_pb2.PublishWeightsRequest
    pieces = (kind(safetensors=data[start : start + (1 << 20)]) for start in range(0, len(data), 1 << 20))
    target.call(lambda channel: RepositoryServiceStub(channel).PublishWeights(iter([kind(base=base), *pieces])))


def _followed(channel: grpc.Channel, messages: Sequence[replication_service_pb2.FollowRequest]) -> None:
    for _ in ReplicationServiceStub(channel).Follow(iter(messages), timeout=5):
        continue


def _replica(target: Target) -> None:
    kind = replication_service_pb2.FollowRequest
    lack = replication_service_pb2.Lack(policy="x", reason="y" * _LARGE)
    for number in range(6):
        hello = kind(hello=replication_service_pb2.Hello(id=f"{number}"))
        told = kind(adopted=replication_service_pb2.Adopted(revision=1, lacks=[lack]))
        target.call(partial(_followed, messages=(hello, told)))
    target.call(lambda channel: ReplicationServiceStub(channel).Replicas(replication_service_pb2.ReplicasRequest()))


def _packed(target: Target) -> None:
    contents = inference.InferTensorContents()
    contents.MergeFromString(b"\x1a\x80\x80\x80\x1e" + bytes(_LARGE))
    tensor = inference.ModelInferRequest.InferInputTensor(name="x", datatype="INT64", contents=contents)
    request = inference.ModelInferRequest(model_name="echo", inputs=[tensor])
    target.call(lambda channel: GRPCInferenceServiceStub(channel).ModelInfer(request))


def _name(target: Target) -> None:
    request = health_pb2.HealthCheckRequest(service="x" * _LARGE)
    for _ in range(3):
        target.call(lambda channel: HealthStub(channel).Check(request))


ATTACKS: Final[Mapping[str, Callable[[Target], None]]] = MappingProxyType(
    {
        "http size": _http_size,
        "http depth": lambda target: target.asked("http", _body(b"[" * 900_000)),
        "http count": lambda target: target.asked("http", b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5_000),
        "http half": lambda target: _repeat(300, lambda: target.send("http", _INFER.encode())),
        "http repeat": lambda target: _repeat(4, lambda: target.asked("http", _bomb())),
        "http lie": lambda target: target.asked("http", f"{_INFER}Content-Length: {1 << 60}\r\n\r\n".encode()),
        "http two at once": _http_two,
        "socket size": lambda target: target.asked("socket", b"x" * (4 << 20)),
        "socket depth": lambda target: target.asked("socket", b'{"a":' + b"[" * 900_000 + b"\n"),
        "socket count": lambda target: _sessions(target, 1, b'{"context":"f"}\n' * 200_000),
        "socket half": lambda target: _sessions(target, 4, b'{"observation":0,"bytes":60000000}\n' + bytes(30_000_000)),
        "socket repeat": lambda target: _sessions(target, 400),
        "socket lie": lambda target: _sessions(target, 20, b'{"observation":0,"bytes":%d}\n' % (1 << 60)),
        "gRPC name size": _name,
        "inference count": _packed,
        "publishing depth": _publish(f'backend = "onnx"\n[settings]\n{".".join("a" * 30_000)} = 1\n'),
        "publishing size": _publish('backend = "onnx"\n' + "#" * _LARGE),
        "weights count": _weights,
        "replica size": _replica,
    }
)  # fmt: skip


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[tuple[int, dict[str, str]]]:
    repository = folder / "policies"
    (repository / "echo" / "1").mkdir(parents=True)
    (repository / "echo" / "policy.toml").write_text('backend = "python"\ninline = true\n')
    (repository / "echo" / "1" / "policy.py").write_text(POLICY)
    command, env = serve_command(sys.executable)
    listen = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--socket", str(folder / "s")]
    command += ["--repository", str(repository), "--allow-python", "--allow-publish", *listen]
    with server(command, env=env, log=folder / "log") as started:
        yield started.pid, {each.partition(":")[0]: each.partition(":")[2] for each in started.addresses}


def _ask(path: str, over: Event, told: "Queue[list[tuple[float, float]]]") -> None:
    waits = []
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as beside:
        beside.connect(path)
        answers = beside.makefile("rb")
        beside.sendall(_HELLO)
        answers.readline()
        beside.sendall(_VARIES.replace(b"-1", b"1"))
        while not over.wait(1e-3):
            begun = time.monotonic()
            beside.sendall(b'{"observation":0}\n' + bytes(8) + b"\n")
            answers.read(9)
            waits.append((begun, time.monotonic()))
    told.put(waits)


def measure(name: str) -> tuple[float, float, float]:
    """Run an attack on a fresh server; give the longest wait (s), and the bytes above idle, at most and after it."""
    # A process of its own: the attacker holds its interpreter while it makes large messages.
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="pb-attack-") as scratch, _served(Path(scratch)) as (pid, addresses):
        over, told = processes.Event(), processes.Queue()
        beside = processes.Process(target=_ask, args=(addresses["socket"], over, told))
        beside.start()
        time.sleep(_BEFORE)
        memory = Memory(pid)
        memory.start()
        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            ATTACKS[name](Target(addresses, stack))
        time.sleep(_AFTER)
        memory.stop()
        over.set()
        waits = [ended - asked for asked, ended in told.get(timeout=60) if ended >= begun]
        beside.join()
        return max(waits), memory.most - memory.first, memory.last - memory.first


def main() -> int:
    """Print a row for each attack."""
    table = Table("door and kind", "longest wait, ms", "MB above idle", "after 4 s", "breaks")
    broken = 0
    for name in sys.argv[1:] or ATTACKS:
        wait, most, after = measure(name)
        breaks = " ".join(
            what for what, is_broken in (("wait", wait > _STALL), ("memory", most > _MEMORY)) if is_broken
        )
        broken += bool(breaks)
        table.add_row(name, f"{wait * 1e3:.0f}", f"{most / 1e6:.0f}", f"{after / 1e6:.0f}", breaks)
    Console(width=120).print(table)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

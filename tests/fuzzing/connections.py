"""Targets with a server, in this process, so that the fuzzer sees which of its lines an input reaches.

Each input is what one client sends before it closes its side. The server must close the connection, must log no error
of its own, and must go on serving.
"""

import asyncio
import contextlib
import logging
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from policybridge_client import ElementType, TensorSpec, open_runner
from policybridge_server.access import Access
from policybridge_server.config import ServerConfig
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.grpc.http2.headers import write_headers
from policybridge_server.loop import Loop
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.repository import Limits, Repository
from policybridge_server.transports.contract import Host, Transport, load_transport
from tests.fuzzing.inputs import Target, pieces

_POLICY: Final = """class Policy:
    def evaluate(self, observation, session):
        x = observation["x"]
        return x[:1] if len(x) else [0]
"""
_TOML: Final = 'backend = "python"\ninline = true\n'
_WAIT: Final = 20.0
_CHECK_EVERY: Final = 500

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS: Final = b"\0\0\0\4\0\0\0\0\0"
_KINDS: Final = 11
FIELDS: Final = {":method": "POST", ":scheme": "http", ":authority": "localhost", "te": "trailers"} | {
    "content-type": "application/grpc"
}
"""The headers of a call, but for its path."""

_PROTO: Final = """syntax = "proto3";
package fuzzed;
service Fuzzed {
  rpc ask(Question) returns (Answer);
  rpc askInOrder(Question) returns (Answer);
}
message Question {
  repeated int64 x = 1;
  string name = 2;
  bool first = 3;
  bool last = 4;
  repeated Node nodes = 5;
  map<string, int32> counts = 6;
  repeated bytes texts = 7;
  double number = 8;
}
message Node {
  repeated float values = 1;
}
message Answer {
  int64 action = 1;
}
"""
_BIND: Final = {"bind": {"dense": {"field": "nodes.values", "shape": [-1, 2], "pad": True, "truncate": True}}}
_METHODS: Final = {"fuzzed.Fuzzed/askInOrder": {"key": "name", "start": "first", "end": "last", "fallback": 1}}


class _Errors(logging.Handler):
    """Collects what the server logs as errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


class _Server:
    """A server with one policy in a thread of this process.

    Attributes:
        addresses: on which it listens, by the name of the transport.

    """

    def __init__(self, folder: Path, listen: dict[str, str], options: dict[str, Any]) -> None:
        (folder / "policies" / "echo" / "1").mkdir(parents=True)
        (folder / "policies" / "echo" / "policy.toml").write_text(_TOML)
        (folder / "policies" / "echo" / "1" / "policy.py").write_text(_POLICY)
        addresses: dict[str, Any] = {name: [address] for name, address in listen.items()}
        config = ServerConfig(
            repository=[str(folder / "policies")], allow_python=True, grace=0.0, **addresses, **options
        )
        self._engine = Engine(Repository([folder / "policies"], Limits(1 << 30, 1000)), allow_python=True)
        self.errors = _Errors()
        logging.getLogger().addHandler(self.errors)
        self.addresses: dict[str, str] = {}
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(config,), daemon=True)
        self._thread.start()
        if not self._ready.wait(_WAIT):
            raise RuntimeError("the server did not become ready")

    def _run(self, config: ServerConfig) -> None:
        with asyncio.Runner(loop_factory=lambda: Loop(self._engine.flush, 0.0)) as runner:
            runner.run(self._serve(config))

    async def _serve(self, config: ServerConfig) -> None:
        loop: Any = asyncio.get_running_loop()
        self._loop = loop
        self._engine.attach(loop)
        opener = SessionOpener(self._engine)
        publisher = Publisher(opener, allowed=False, keep_versions=10)
        host = Host(opener, publisher, loop, config, Access(config))
        transports: list[Transport] = [load_transport(name, address) for name, address in config.addresses()]
        for transport in transports:
            await transport.start(host)
        self.addresses = {each.address.partition(":")[0]: each.address for each in transports}
        self._ready.set()
        await self._stop.wait()
        for transport in transports:
            await transport.stop(0)
        publisher.close()

    def close(self) -> None:
        logging.getLogger().removeHandler(self.errors)
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_WAIT)
        self._engine.close()


class _Fuzzed:
    """Sends inputs to one address of a server, and asks for a decision now and then."""

    def __init__(self, server: _Server, address: str) -> None:
        self._server = server
        self._address = address
        self._count = 0

    def send(self, data: bytes) -> None:
        """Send the bytes, close this side, and read until the server closes too."""
        with self._connected() as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(1 << 16):
                    pass
        assert not self._server.errors.texts, self._server.errors.texts
        self._count += 1
        if self._count % _CHECK_EVERY == 1:
            self._ask()

    def _connected(self) -> socket.socket:
        target = self._address.partition(":")[2]
        if self._address.startswith("socket:"):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(_WAIT)
            connection.connect(target)
            return connection
        host, _, port = target.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=_WAIT)

    def _ask(self) -> None:
        features, advice = [TensorSpec("x", ElementType.INT64, (1,))], TensorSpec("a", ElementType.INT64, (1,))
        with open_runner(self._server.addresses["socket"], policy="echo", features=features, advice=advice) as runner:
            runner["x"] = [7]
            assert runner.evaluate() == 7


@contextlib.contextmanager
def _fuzzed(name: str, **options: Any) -> Iterator[_Fuzzed]:
    with tempfile.TemporaryDirectory(prefix="pb-fuzz-") as scratch:
        listen = {"socket": f"{scratch}/socket"} | ({} if name == "socket" else {name: "127.0.0.1:0"})
        server = _Server(Path(scratch), listen, options)
        try:
            yield _Fuzzed(server, server.addresses[name])
        finally:
            server.close()


@contextlib.contextmanager
def socket_bytes() -> Iterator[Target]:
    """Send bytes to the socket."""
    with _fuzzed("socket") as fuzzed:
        yield fuzzed.send


@contextlib.contextmanager
def http_bytes() -> Iterator[Target]:
    """Send bytes to the HTTP port."""
    with _fuzzed("http") as fuzzed:
        yield fuzzed.send


@contextlib.contextmanager
def grpc_frames() -> Iterator[Target]:
    """Send HTTP/2 frames to the gRPC port: each piece is a type, flags, a stream and the payload."""
    with _fuzzed("grpc") as fuzzed:
        yield lambda data: fuzzed.send(_PREFACE + _SETTINGS + b"".join(map(_frame, pieces(data))))


def _frame(piece: bytes) -> bytes:
    kind, flags, stream = piece[:3].ljust(3, b"\0")
    payload = piece[3:]
    return len(payload).to_bytes(3, "big") + bytes((kind % _KINDS, flags, 0, 0, 0, stream)) + payload


@contextlib.contextmanager
def mlbridge_calls() -> Iterator[Target]:
    """Send messages of ML-Compiler-Bridge's clients over gRPC: each piece is a method's number and a request."""
    with tempfile.TemporaryDirectory(prefix="pb-fuzz-") as scratch:
        (Path(scratch) / "fuzzed.proto").write_text(_PROTO)
        mlbridge = {"protos": [scratch], "policy": "echo", "services": {"fuzzed.Fuzzed": _BIND}, "methods": _METHODS}
        with _fuzzed("grpc", mlbridge=mlbridge) as fuzzed:
            yield lambda data: fuzzed.send(
                _PREFACE + _SETTINGS + b"".join(_call(2 * n + 1, piece) for n, piece in enumerate(pieces(data)))
            )


def _call(stream: int, piece: bytes) -> bytes:
    method = "ask" if piece[:1] < b"\x80" else "askInOrder"
    fields = {":path": f"/fuzzed.Fuzzed/{method}", **FIELDS}
    message = struct.pack(">BL", 0, len(piece[1:])) + piece[1:]
    return _http2(1, 4, stream, write_headers(fields.items())) + _http2(0, 1, stream, message)


def _http2(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload

"""A relay between clients and a server that gives clients other forms than the server's: damaged ones, and lies."""

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any, Final

import grpc

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_core.digest import content_digest
from tests.conftest import RunningServer
from tests.peers.servicer import SessionServicer, served


@dataclass(frozen=True)
class Told:
    """The form that clients get in the place of another.

    Attributes:
        digest: that is announced.
        size: in bytes, that is announced.
        data: the bytes that are sent.

    """

    digest: str
    size: int
    data: bytes


def _told(data: bytes) -> Told:
    return Told(content_digest(data), len(data), data)


ALTERATIONS: Final[Mapping[str, Callable[[bytes], Told]]] = {
    "damaged": lambda form: _told(form[:96] + b"\xff" * 8 + form[104:]),
    "of a newer format": lambda form: _told(form[:8] + (99).to_bytes(4, "little") + form[12:]),
    "of another digest": lambda form: Told(content_digest(form), len(form), form[:-1] + bytes([form[-1] ^ 1])),
    "too large": lambda form: Told(content_digest(form), 1 << 60, form),
}
"""Forms that clients must not decide by, made of a server's."""


@contextmanager
def altering(
    server: RunningServer, forms: Iterable[bytes], alter: Callable[[bytes], Told], folder: Path
) -> Iterator[Mapping[str, str]]:
    """Relay sessions to a server; give the relay's addresses by their scheme. ``folder`` has the socket."""
    told = {content_digest(each): alter(each) for each in forms}
    with ExitStack() as stack:
        relay = _Socket(server.socket.removeprefix("socket:"), told, folder / "relay.sock")
        stack.callback(relay.close)
        grpc_address = stack.enter_context(_over_grpc(server.grpc.removeprefix("grpc:"), told))
        yield {"socket": f"socket:{folder / 'relay.sock'}", "grpc": grpc_address}


class _Socket:
    """Relays connections of the socket's protocol; each takes two threads."""

    def __init__(self, server: str, told: Mapping[str, Told], path: Path) -> None:
        self._server = server
        self._told = told
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._begin(self._accept)

    def _begin(self, run: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=run, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._open += [client, server]
                self._begin(self._ask, client, server)
                self._begin(self._answer, client, server)

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on the client's bytes; answer its requests for forms."""
        with suppress(OSError):
            while sent := client.recv(1 << 16):
                if sent.startswith(b'{"form":'):
                    # A client asks for a form alone, and waits.
                    digest = json.loads(sent)["form"]
                    client.sendall(b"\0" + next(each.data for each in self._told.values() if each.digest == digest))
                else:
                    server.sendall(sent)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on the server's bytes; announce the other forms in its first line."""
        with suppress(OSError):
            line = b""
            while not line.endswith(b"\n") and (sent := server.recv(1 << 16)):
                line += sent
            opened = json.loads(line or b"{}")
            for form in opened.get("forms", {}).values():
                told = self._told[form["digest"]]
                form.update(digest=told.digest, bytes=told.size)
            client.sendall(json.dumps(opened, separators=(",", ":")).encode() + b"\n")
            while sent := server.recv(1 << 16):
                client.sendall(sent)
            client.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in (self._listener, *self._open):
            each.close()


class _Relay(SessionServicer):
    """Relays sessions over gRPC."""

    def __init__(self, channel: grpc.Channel, told: Mapping[str, Told]) -> None:
        self._session: Any = PolicyServiceStub(channel).Session
        self._told = told

    def Session(  # noqa: N802
        self, requests: Iterator[pb.SessionRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.SessionResponse]:
        answers: Queue[pb.SessionResponse | grpc.RpcError | None] = Queue()
        call = self._session(self._passed(requests, answers))
        context.add_callback(call.cancel)
        waiting = threading.Thread(target=_receive, args=(call, answers))
        waiting.start()
        while isinstance(answer := answers.get(), pb.SessionResponse):
            for form in answer.opened.forms.values() if answer.HasField("opened") else ():
                told = self._told[form.digest]
                form.digest, form.bytes = told.digest, told.size
            yield answer
        waiting.join()
        if isinstance(answer, grpc.Call):
            context.abort(answer.code(), answer.details())

    def _passed(
        self, requests: Iterator[pb.SessionRequest], answers: "Queue[pb.SessionResponse | grpc.RpcError | None]"
    ) -> Iterator[pb.SessionRequest]:
        """Give the requests to pass on; answer those for forms."""
        for request in requests:
            if request.HasField("form"):
                data = next(each.data for each in self._told.values() if each.digest == request.form.digest)
                answers.put(pb.SessionResponse(form=pb.FormPart(data=data, last=True)))
            else:
                yield request


def _receive(call: Iterator[Any], answers: "Queue[pb.SessionResponse | grpc.RpcError | None]") -> None:
    try:
        for each in call:
            answers.put(each)
        answers.put(None)
    except grpc.RpcError as error:
        answers.put(error)


@contextmanager
def _over_grpc(server: str, told: Mapping[str, Told]) -> Iterator[str]:
    with grpc.insecure_channel(server) as channel, served(_Relay(channel, told), threads=8) as address:
        yield address

"""Targets of what clients read: answers of a hostile server, and what a hostile compiler sends to the host.

The other side sends an input, or its pieces, and ends. The client must give advice of the type that it asked for, or
raise a `PolicyBridgeError`, after which the session is over.
"""

import contextlib
import logging
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import grpc
import numpy as np

from policybridge_client.contract import ClientSession
from policybridge_client.grpc import GrpcConnection
from policybridge_client.llvm.growth import Growth
from policybridge_client.llvm.inliner import ComputedDefaults, Defaults, SentDefaults
from policybridge_client.llvm.responder import Patience, Responder
from policybridge_client.llvm.statistics import CompilationStatistics
from policybridge_client.llvm.tasks import EVICT, INLINE, PRIORITY
from policybridge_client.pipe import PipeConnection
from policybridge_client.socket import SocketConnection
from policybridge_core.closing import Closing
from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_serdes import (
    ElementType,
    Exploration,
    Layout,
    Outcome,
    PolicyReference,
    PolicyVersion,
    SessionOptions,
    Signature,
    TensorSpec,
    Values,
    zeros,
)
from policybridge_serdes.interactive import Header, InteractiveReader
from policybridge_serdes.limits import MessageLimits
from tests.fuzzing.inputs import Target, pieces

ADVICE: Final = (
    TensorSpec("advice", ElementType.INT64, (1,)),
    TensorSpec("advice", ElementType.FLOAT, (-1, 2)),
    TensorSpec("advice", ElementType.STRING, (-1,)),
    TensorSpec("advice", ElementType.BOOL, (3,)),
    TensorSpec("advice", ElementType.STRING, (1,)),
)
"""What is asked for; an input's first byte chooses."""
EXPLORES: Final = 128
"""The bit of the first byte that says whether the session explores, or which form a pipe has."""
FEATURES: Final = Layout.of([TensorSpec("x", ElementType.INT64, (1,))])

_POLICY: Final = PolicyReference("echo")
_DECISIONS: Final = 3
_WAIT: Final = 20.0
_LIMITS: Final = MessageLimits(observation_bytes=1 << 16)
_PIECE: Final = 1 << 16


def _signature(first: int) -> Signature:
    return Signature(FEATURES, ADVICE[first % len(ADVICE)])


def _options(first: int) -> SessionOptions:
    return SessionOptions("main", exploration=Exploration(seed=1) if first & EXPLORES else None)


def _use(session: ClientSession, signature: Signature) -> None:
    """Ask and report; each failure must end the session."""
    asks = [partial(_ask, session, signature)] * _DECISIONS
    for ask in [*asks, partial(session.report, Outcome({"size": 1.0}))]:
        try:
            ask()
        except PolicyBridgeError:
            with contextlib.suppress(PreconditionError):
                session.evaluate(zeros(FEATURES))
                raise AssertionError("a session goes on after an error") from None
            return


def _ask(session: ClientSession, signature: Signature) -> None:
    values = session.evaluate(zeros(FEATURES))
    assert values.dtype == signature.advice_layout.dtype
    wanted, (value,) = signature.advice, values[signature.advice.name]
    assert len(value.shape) == len(wanted.shape), "an advice of another shape"
    assert all(size in (-1, got) for size, got in zip(wanted.shape, value.shape, strict=True))


class _SocketPeer:
    """Answers each connection to a Unix socket with the same bytes, whatever it asks."""

    def __init__(self, path: str) -> None:
        self.answer = b""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        held: list[socket.socket] = []
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                # Open until the next client comes, so that this one can send what it likes.
                for earlier in held:
                    earlier.close()
                held[:] = [connection]
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(self.answer)
                    connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextlib.contextmanager
def client_socket() -> Iterator[Target]:
    """Read the answers of a server over its Unix socket: to a hello, to observations, to outcomes."""
    with tempfile.TemporaryDirectory(prefix="pb-fuzz-") as scratch:
        path = f"{scratch}/socket"
        peer = _SocketPeer(path)

        def run(data: bytes) -> None:
            first, peer.answer = data[:1] or b"\0", data[1:]
            signature = _signature(first[0])
            with SocketConnection(path, _WAIT) as connection, contextlib.suppress(PolicyBridgeError):
                _use(connection.open(_POLICY, signature, _options(first[0])), signature)
            with SocketConnection(path, _WAIT) as connection, contextlib.suppress(PolicyBridgeError):
                connection.report_outcome("1", Outcome({}))

        try:
            yield run
        finally:
            peer.close()


@contextlib.contextmanager
def client_pipe() -> Iterator[Target]:
    """Read the answers of a model behind ML-Compiler-Bridge's pipes, in both forms."""
    with tempfile.TemporaryDirectory(prefix="pb-fuzz-") as scratch:
        base = f"{scratch}/pipe"
        for end in (".in", ".out"):
            os.mkfifo(base + end)
        asked = os.open(base + ".out", os.O_RDWR | os.O_NONBLOCK)

        def run(data: bytes) -> None:
            first, answers = (data[:1] or b"\0")[0], data[1:]
            signature = _signature(first)
            held = os.open(base + ".in", os.O_RDWR)
            os.write(held, answers)
            form = "json" if first & EXPLORES else "bytes"
            with PipeConnection(f"{base}:{form}", _WAIT) as connection:
                session = connection.open(_POLICY, signature, SessionOptions())
                # Behind the answers comes the end, so that the client waits for no more.
                os.close(held)
                _use(session, signature)
            with contextlib.suppress(BlockingIOError):
                while os.read(asked, _PIECE):
                    pass

        try:
            yield run
        finally:
            os.close(asked)


class GrpcPeer(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # it has none at run time
    """Answers the calls of PolicyService with an input's pieces."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def service(self, details: Any) -> Any:
        if details.method.endswith("/Session"):
            return grpc.stream_stream_rpc_method_handler(self._session)
        return grpc.unary_unary_rpc_method_handler(lambda *_: self.answers[0] if self.answers else b"")

    def _session(self, *_: object) -> Iterator[bytes]:
        # All at once: gRPC's library leaves the call of an answer that is no message open until the channel is closed.
        yield from list(self.answers)


@contextlib.contextmanager
def client_grpc() -> Iterator[Target]:
    """Read the messages of a server over gRPC; each piece is one."""
    # gRPC's library logs each message that is none, with a traceback.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="pb-fuzz-") as scratch, ThreadPoolExecutor(4) as pool:
        peer, server = GrpcPeer(), grpc.server(pool)
        server.add_generic_rpc_handlers([peer])
        server.add_insecure_port(f"unix:{scratch}/socket")
        server.start()
        connection = GrpcConnection(f"unix:{scratch}/socket", _WAIT)

        def run(data: bytes) -> None:
            first, peer.answers = (data[:1] or b"\0")[0], list(pieces(data[1:]))
            signature = _signature(first)
            with (
                contextlib.suppress(PolicyBridgeError),
                connection.open(_POLICY, signature, _options(first)) as session,
            ):
                _use(session, signature)
            with contextlib.suppress(PolicyBridgeError):
                connection.evaluate_once(_POLICY, FEATURES, zeros(FEATURES))

        try:
            yield run
        finally:
            connection.close()
            server.stop(None)


class Advising(Closing):
    """Gives one advice, as a connection of another distribution might: all its bytes are ``byte``."""

    id = "1"
    policy = PolicyVersion("echo", 1, "")
    decides: Sequence[str] = ()
    log_probability: float | None = None

    def __init__(self, signature: Signature, byte: int) -> None:
        self._layout = signature.advice_layout
        self._byte = byte

    def evaluate(self, observation: Values) -> Values:
        """Give the advice."""
        assert observation.dtype.names is not None
        return np.ndarray(1, self._layout.dtype, bytes([self._byte]) * self._layout.size)

    def context(self, name: str) -> None:
        """Ignore the name."""

    def report(self, outcome: Outcome) -> None:
        """Ignore the outcome."""

    def close(self) -> None:
        """Do nothing."""


_TASKS: Final = (INLINE, EVICT, PRIORITY)
_DEFAULTS: Final[tuple[Callable[[], Defaults], ...]] = (SentDefaults, ComputedDefaults, Defaults)


def llvm_host(data: bytes) -> None:
    """Answer a hostile compiler; the first bytes choose the task, where the defaults come from, and the advice."""
    task, defaults, advice, *_ = data[:3].ljust(3, b"\0")
    replies: list[bytes] = []
    responder = Responder(
        _TASKS[task % len(_TASKS)],
        lambda signature, _: Advising(signature, advice),
        _DEFAULTS[defaults % len(_DEFAULTS)](),
        CompilationStatistics(),
        patience=Patience(_WAIT),
        growth=Growth(1.0),
        go_on=bool(defaults & EXPLORES),
    )
    reader = InteractiveReader(_LIMITS)
    size = 0
    with contextlib.suppress(PolicyBridgeError):
        for piece in pieces(data[3:]):
            for event in reader.feed(piece):
                size = event.signature.advice_layout.size if isinstance(event, Header) else size
                responder.answer(event, replies.append)
                assert all(len(reply) == size for reply in replies), "a reply that LLVM would read beyond"
                assert len(replies) == isinstance(event, bytes), "an observation has one reply"
                replies.clear()
    responder.close()

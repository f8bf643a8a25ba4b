"""The messages between the server and a policy's process, and the frames that carry them.

A frame is 12 bytes of lengths, a head in JSON, and a body of numbers. The server asks, and the process answers each
request once. The server reads only these structures from it.
"""

import socket
import struct
import time
from typing import Any, Final, TypeVar

import msgspec

from policybridge_core.errors import PolicyFailedError
from policybridge_server.backends.process.arrays import Fields

_LENGTHS: Final = struct.Struct("<IQ")
MAX_HEAD: Final = 1 << 24
MAX_BODY: Final = 1 << 31

_Head = TypeVar("_Head", bound=msgspec.Struct)


class Load(msgspec.Struct):
    """Load a version. ``config`` is its policy.toml as JSON; the process may allocate ``memory`` bytes."""

    folder: str
    config: dict[str, Any]
    name: str
    memory: int | None = None


class Loaded(msgspec.Struct):
    """The loaded model; specs in LLVM's form. ``stateful``: the process needs the ends of sessions."""

    features: list[dict[str, Any]] | None
    advice: dict[str, Any] | None
    batched: bool
    stateful: bool


class NewSession(msgspec.Struct):
    """A session that the process has not met."""

    number: int
    id: str
    name: str
    version: int
    digest: str
    options: dict[str, str]
    labels: dict[str, str]


class NewLayout(msgspec.Struct):
    """The record types of the batches that follow: the features' fields, and the advice's specs."""

    fields: Fields
    advice: list[dict[str, Any]]


class Evaluate(msgspec.Struct, omit_defaults=True):
    """Evaluate the records in the body, one for each of ``sessions``, by their numbers.

    ``contexts`` gives those that have changed. ``layout`` is sent if it differs from that of the request before.
    """

    count: int
    sessions: list[int]
    new: list[NewSession] = []
    contexts: dict[int, str] = {}
    layout: NewLayout | None = None


class End(msgspec.Struct):
    """A session is over."""

    number: int


class Failed(msgspec.Struct):
    """An error instead of an answer: its text, and its traceback in the process."""

    text: str
    traceback: str


class Asked(msgspec.Struct):
    """The head of a request: one of its fields is set."""

    load: Load | None = None
    evaluate: Evaluate | None = None
    end: End | None = None


class Reply(msgspec.Struct):
    """The head of a reply: ``failed``, or the field of the request's kind."""

    failed: Failed | None = None
    loaded: Loaded | None = None


class Channel:
    """One end of the connection. For one thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, head: msgspec.Struct, body: bytes = b"", due: float | None = None) -> None:
        """Send a frame by ``due``, of ``time.monotonic``.

        Raises:
            OSError: the peer has closed, or (TimeoutError) does not read.

        """
        encoded = msgspec.json.encode(head)
        self._limit(due)
        self._connection.sendall(b"".join((_LENGTHS.pack(len(encoded), len(body)), encoded, body)))

    def receive(self, kind: type[_Head], due: float | None = None) -> tuple[_Head, bytes]:
        """Receive a frame by ``due``.

        Raises:
            EOFError: the peer has closed.
            OSError: likewise, or (TimeoutError) it sends too little.
            PolicyFailedError: this is not a frame.

        """
        head_size, body_size = _LENGTHS.unpack(self._take(_LENGTHS.size, due))
        if head_size > MAX_HEAD or body_size > MAX_BODY:
            raise PolicyFailedError("the policy's process sent a frame that is too large")
        head, body = self._take(head_size, due), self._take(body_size, due)
        try:
            return msgspec.json.decode(head, type=kind), body
        except msgspec.DecodeError as error:
            raise PolicyFailedError(f"the policy's process sent a frame that means nothing: {error}") from error

    def _take(self, size: int, due: float | None) -> bytes:
        taken = bytearray()
        while len(taken) < size:
            self._limit(due)
            piece = self._connection.recv(min(size - len(taken), 1 << 20))
            if not piece:
                raise EOFError
            taken += piece
        return bytes(taken)

    def _limit(self, due: float | None) -> None:
        if due is not None:
            left = due - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._connection.settimeout(left)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

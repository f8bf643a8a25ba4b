"""Messages between the driver of the kills and its processes: one JSON object a line."""

from typing import Any

import msgspec


class Serving(msgspec.Struct, tag=True):
    """Serve: fields of `ServerConfig`, and a file with the error of the ledger's clock in seconds, if it has one."""

    config: dict[str, Any]
    offset: str = ""


class Asking(msgspec.Struct, tag=True):
    """Ask the server at these addresses until `Rest`; ask again after each failure."""

    socket: str
    grpc: str


class Rest(msgspec.Struct, tag=True):
    """End all sessions, and say `Over`."""


class Publishing(msgspec.Struct, tag=True):
    """Publish version after version of a policy, from a folder with its files, by a copy in a folder for that."""

    grpc: str
    policy: str
    files: str
    scratch: str


class Wanted(msgspec.Struct):
    """Make a process that does a task, and whose output goes into a file."""

    task: Serving | Publishing
    output: str


class Acknowledged(msgspec.Struct, tag=True):
    """Decisions and outcomes that the server acknowledged to a client.

    Attributes:
        thread: that asked; it begins each session after the end of the one before.
        seed: of the observations.
        count: of the session's decisions so far.
        advices: SHA-256 of their bytes.
        report: the number in the last outcome; 0: none was reported.
        ended: whether the session's end was answered with OK.

    """

    session: str
    thread: str
    seed: int
    count: int
    advices: str
    report: int
    ended: bool = False


class Asked(msgspec.Struct, tag=True):
    """The number of decisions, at a moment of the monotonic clock, of a session that never reports."""

    session: str
    count: int
    at: float


class Published(msgspec.Struct, tag=True):
    """A version that the server has acknowledged."""

    version: int
    digest: str


class Naming(msgspec.Struct, tag=True):
    """A change of `latest` begins; ``latest`` is the version that it is to name, 0: a new one."""

    latest: int


class Named(msgspec.Struct, tag=True):
    """The server has acknowledged that `latest` names this version."""

    latest: int


class Over(msgspec.Struct, tag=True):
    """The client has no session any more."""


Said = Acknowledged | Asked | Published | Naming | Named | Over


def say(message: Said) -> None:
    """Write a message to standard output."""
    print(msgspec.json.encode(message).decode(), flush=True)

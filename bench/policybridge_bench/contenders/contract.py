"""The contract of a contender, and the table of contenders."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from policybridge_bench.load import Load
from policybridge_core.plugins import Table


@dataclass(frozen=True)
class Route:
    """One way to ask a contender that serves.

    Attributes:
        way: its name: ``socket``, ``grpc``, ``grpc-unix``, ``unary``, …
        load: of a client; seconds, warm-up and rate are filled in later.
        generators: which of ``native``, ``wire`` and ``python`` support it.
        backend: of the policy; empty if there is none.

    """

    way: str
    load: Load
    generators: Sequence[str]
    backend: str = ""


@dataclass(frozen=True)
class Serving:
    """A contender that is ready: its process id (``None`` if it is not known), and the ways to ask it."""

    pid: int | None
    routes: Sequence[Route]


@dataclass(frozen=True)
class Setting:
    """The setting in which a contender starts.

    Attributes:
        folder: an empty one for this run, with a short path.
        cache: folder for environments and builds, which stay; it may not exist yet.
        payloads: names of the payloads that clients will send.
        backends: names of the backends, for contenders that have several.
        serdes: names of the SerDes, for contenders that have several.

    """

    folder: Path
    cache: Path
    payloads: Sequence[str]
    backends: Sequence[str] = ("onnx",)
    serdes: Sequence[str] = ("bitstream",)


class Contender(Protocol):
    """Something that serves."""

    def prepare(self, cache: Path) -> None:  # noqa: ARG002
        """Install or build missing parts; most contenders need nothing.

        Raises:
            PreconditionError: this machine cannot; the message has the reason and the remedy.

        """
        return

    def serve(self, setting: Setting) -> AbstractContextManager[Serving]:
        """Serve, in a process of its own, until the context ends."""


CONTENDERS = Table(
    # The import string names a function without arguments that returns the contender.
    kind="contender",
    group="policybridge.contenders",
    own={"policybridge": "policybridge_bench.contenders.own:PolicyBridge"},
)


def load_contender(name: str, contenders: Table = CONTENDERS) -> Contender:
    """Make the contender called ``name``.

    Raises:
        NotFoundError: no contender has this name; the message lists them.

    """
    return cast("Callable[[], Contender]", contenders.load(name))()

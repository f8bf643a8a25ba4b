"""The contract of a contender, and the table of those that there are."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from policybridge_bench.load import Load
from policybridge_serdes.plugins import Table


@dataclass(frozen=True)
class Route:
    """One way to ask a contender that serves.

    Attributes:
        way: what it is called: ``socket``, ``grpc``, ``grpc-unix``, ``unary``, …
        load: what a client is told; seconds, warm-up and rate are filled in.
        generators: which of ``native``, ``wire`` and ``python`` can go it.
        backend: what evaluates the policy; empty where there is none.

    """

    way: str
    load: Load
    generators: Sequence[str]
    backend: str = ""


@dataclass(frozen=True)
class Serving:
    """A contender that is ready: the process that answers (``None`` where it is another's), and the ways to it."""

    pid: int | None
    routes: Sequence[Route]


@dataclass(frozen=True)
class Setting:
    """What a contender is started with.

    Attributes:
        folder: a short-lived one of its own, with a short path.
        cache: where environments and builds stay; made on demand.
        payloads: what will be asked, by name.
        backends: with which backends, where there is a choice.
        serdes: by which SerDes, where there is a choice.

    """

    folder: Path
    cache: Path
    payloads: Sequence[str]
    backends: Sequence[str] = ("onnx",)
    serdes: Sequence[str] = ("bitstream",)


class Contender(Protocol):
    """Something that serves."""

    def prepare(self, cache: Path) -> None:
        """Install or build what it needs, where that is not there yet.

        Raises:
            PreconditionError: that cannot be done here; the message says why, and what would help.

        """
        ...

    def serve(self, setting: Setting) -> AbstractContextManager[Serving]:
        """Serve, in a process of its own, until the context ends."""
        ...


CONTENDERS = Table(
    # What an import string names is called without arguments and gives the contender.
    kind="contender",
    group="policybridge.contenders",
    own={
        "policybridge": "policybridge_bench.contenders.own:PolicyBridge",
        "model": "policybridge_bench.contenders.alone:ModelAlone",
        "socket-echo": "policybridge_bench.contenders.echoes:SocketEcho",
        "python-socket-echo": "policybridge_bench.contenders.echoes:PYTHON_SOCKET_ECHO",
        "grpc-echo": "policybridge_bench.contenders.echoes:GrpcEcho",
        "python-grpc-echo": "policybridge_bench.contenders.echoes:PYTHON_GRPC_ECHO",
        "triton": "policybridge_bench.contenders.triton:Triton",
        "triton-python": "policybridge_bench.contenders.triton:TritonPython",
        "kserve": "policybridge_bench.contenders.kserve:KServe",
        "mlserver": "policybridge_bench.contenders.mlserver:MLServer",
        "rayserve": "policybridge_bench.contenders.rayserve:RayServe",
        "mosec": "policybridge_bench.contenders.mosec:Mosec",
        "compilerinterface": "policybridge_bench.contenders.compilerinterface:CompilerInterface",
    },
)

FLOORS = ("model", "socket-echo", "python-socket-echo", "grpc-echo", "python-grpc-echo")
# Even while nobody asks it, a Ray keeps a core busy.
RESTLESS = ("rayserve",)
PEERS = ("triton", "triton-python", "kserve", "mlserver", "rayserve", "mosec", "compilerinterface")


def load_contender(name: str) -> Contender:
    """Make the contender called ``name``.

    Raises:
        NotFoundError: there is none; the message lists those that there are.

    """
    return cast("Callable[[], Contender]", CONTENDERS.load(name))()

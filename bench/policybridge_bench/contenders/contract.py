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
    """The setting that a contender is started in.

    Attributes:
        folder: an empty one for this run, with a short path.
        cache: folder for environments and builds, which stay; it may not exist yet.
        payloads: names of the payloads that will be sent.
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

    def prepare(self, cache: Path) -> None:
        """Install or build what is missing.

        Raises:
            PreconditionError: that is not possible here; the message has the reason and the remedy.

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
        "python-socket-echo": "policybridge_bench.contenders.echoes:PythonSocketEcho",
        "grpc-echo": "policybridge_bench.contenders.echoes:GrpcEcho",
        "python-grpc-echo": "policybridge_bench.contenders.echoes:PythonGrpcEcho",
        "triton": "policybridge_bench.contenders.triton:Triton",
        "triton-python": "policybridge_bench.contenders.triton:TritonPython",
        "kserve": "policybridge_bench.contenders.inference_servers:KServe",
        "mlserver": "policybridge_bench.contenders.inference_servers:MLServer",
        "rayserve": "policybridge_bench.contenders.advice_servers:RayServe",
        "mosec": "policybridge_bench.contenders.mosec:Mosec",
        "compilerinterface": "policybridge_bench.contenders.advice_servers:CompilerInterface",
    },
)

FLOORS = ("model", "socket-echo", "python-socket-echo", "grpc-echo", "python-grpc-echo")
# A Ray keeps a core busy even while it is idle.
RESTLESS = ("rayserve",)
PEERS = ("triton", "triton-python", "kserve", "mlserver", "rayserve", "mosec", "compilerinterface")


def load_contender(name: str) -> Contender:
    """Make the contender called ``name``.

    Raises:
        NotFoundError: there is none; the message lists all contenders.

    """
    return cast("Callable[[], Contender]", CONTENDERS.load(name))()

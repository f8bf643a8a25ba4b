"""The ratios that PolicyBridge promises, and whether a run kept them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from policybridge_bench.bounds import Bound
from policybridge_bench.ratios import find, ratio
from policybridge_bench.results import Measured
from tests.peers.tables import PEERS

_FEW, _MANY = 8, 32


@dataclass(frozen=True)
class Promise:
    """A bound on the median of the ratios within the rounds.

    Attributes:
        way: of PolicyBridge.
        clients: number of clients on both sides.
        figure: ``p50``, at most ``limit`` times the other's; or ``throughput``, at least ``limit`` times the other's.
        limit: the bound.
        others: the other sides, CONTENDER/WAY or CONTENDER each; the worst ratio counts.
        payload: on both sides.

    """

    way: str
    clients: int
    figure: str
    limit: float
    others: tuple[str, ...]
    payload: str = "inliner"

    def __str__(self) -> str:
        who = self.others[0] if len(self.others) == 1 else "fastest peer"
        return f"{self.clients} × {self.way} / {who}, {self.payload}, {self.figure}"


_ECHO: Final = ("grpc-echo/unary",)
_GRPC_PEERS: Final = tuple(peer for peer in PEERS if peer != "mosec")
_TRITON: Final = ("triton/unary",)
_FORMS: Final = ("inliner", "vector")

PROMISES: Final = (
    Promise("socket", 1, "p50", 0.35, _ECHO),
    Promise("socket", 1, "p50", 0.25, _GRPC_PEERS),
    Promise("grpc-unix", 1, "p50", 1.1, _ECHO),
    Promise("grpc-unix", 1, "p50", 1, _GRPC_PEERS),
    Promise("grpc", 1, "p50", 1.5, _ECHO),
    # The ratio includes the model's own time, which an echo does not have.
    Promise("grpc-unary", 1, "p50", 1.15, ("python-grpc-echo/unary",)),
    Promise("grpc-unary", 1, "p50", 1.3, _ECHO),
    Promise("grpc-infer", 1, "p50", 1.3, _ECHO),
    *(Promise(f"grpc-{call}", _FEW, "throughput", 1, _TRITON, form) for call in ("unary", "infer") for form in _FORMS),
    Promise("socket", _FEW, "throughput", 2.5, _ECHO),
    *(Promise("socket", _FEW, "throughput", 5, tuple(PEERS), form) for form in _FORMS),
    *(Promise("grpc-unix", _FEW, "throughput", 1, tuple(PEERS), form) for form in _FORMS),
)


def bounds(measured: Sequence[Measured]) -> Iterator[Bound]:
    """Give the bounds of all promises whose cases were measured by native clients in a closed loop."""
    for promise in PROMISES:
        own = _find(measured, f"policybridge/{promise.way}", promise.clients, promise.payload)
        others = [one for who in promise.others for one in _find(measured, who, promise.clients, promise.payload)]
        if own and others:
            values = [ratio(own[0], other, promise.figure) for other in others]
            more = promise.figure == "throughput"
            yield Bound(str(promise), min(values) if more else max(values), promise.limit, more)
    for way in ("socket", "grpc-unix"):
        few, many = (_find(measured, f"policybridge/{way}", clients, "inliner") for clients in (_FEW, _MANY))
        if few and many:
            yield Bound(f"{way}: {_MANY} clients / {_FEW}, throughput", ratio(many[0], few[0], "throughput"), 1, True)
            tail = (many[0].median("p99") or 0.0) / (many[0].median("p50") or 1.0)
            yield Bound(f"{way}: {_MANY} clients, p99 / p50", tail, 6, False)


def _find(measured: Sequence[Measured], who: str, clients: int, payload: str) -> list[Measured]:
    contender, _, way = who.partition("/")
    fields = {"contender": contender, "clients": clients, "payload": payload, "generator": "native", "rate": None}
    return find(measured, **fields, **({"way": way} if way else {}))

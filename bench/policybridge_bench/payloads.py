"""Payloads: observations of the sizes that compilers have.

Clients import this module, so it must not import ONNX, which takes a second.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import NotFoundError
from policybridge_serdes import VARIES, ElementType, Layout, Signature, TensorSpec, Values, pack

FEATURES = [f"f{index}" for index in range(38)]
SIGNATURE = Signature.of(
    [TensorSpec(name, ElementType.INT64) for name in FEATURES], TensorSpec("inlining_decision", ElementType.INT64)
)
_CANDIDATES = 33
_NODE, _EDGE = 16, 2


@dataclass(frozen=True)
class Payload:
    """One kind of observation.

    Attributes:
        signature: of the sessions that send it.
        make: gives a number of observations, the same at every call.
        count: number of different observations that a client sends in turn.

    """

    signature: Signature
    make: Callable[[Layout, int], list[Values]]
    count: int = 256

    def observations(self) -> list[Values]:
        """Give the observations, one record each."""
        return self.make(self.signature.features, self.count)


def observations(count: int, seed: int = 1) -> npt.NDArray[np.int64]:
    """Give random observations, shape [count, 38], on which both advices occur."""
    return np.random.default_rng(seed).integers(-50, 50, (count, 38))


def _inliner(layout: Layout, count: int) -> list[Values]:
    return [np.ndarray(1, layout.dtype, row.tobytes()) for row in observations(count)]


def _numbers(layout: Layout, count: int) -> list[Values]:
    generator = np.random.default_rng(1)
    return [
        pack(layout, {spec.name: generator.integers(0, 2, spec.shape) for spec in layout.specs}) for _ in range(count)
    ]


def _floats(layout: Layout, count: int) -> list[Values]:
    generator = np.random.default_rng(1)
    (spec,) = layout.specs
    return [pack(layout, {spec.name: generator.normal(size=spec.shape).astype(np.float32)}) for _ in range(count)]


def _graphs(layout: Layout, count: int) -> list[Values]:
    generator = np.random.default_rng(1)
    sizes = [(int(nodes), int(edges)) for nodes, edges in generator.integers(20, 200, (count, 2))]
    return [
        pack(
            layout,
            {
                "nodes": generator.normal(size=(nodes, _NODE)).astype(np.float32),
                "edges": generator.integers(0, nodes, (edges, _EDGE)),
            },
        )
        for nodes, edges in sizes
    ]


def _vector(width: int) -> Signature:
    return Signature.of([TensorSpec("observation", ElementType.FLOAT, (width,))], SIGNATURE.advice)


def _eviction() -> Signature:
    kinds = [ElementType.INT64] * 6 + [ElementType.FLOAT] * 14
    features = [TensorSpec(f"r{index}", kind, (1, _CANDIDATES)) for index, kind in enumerate(kinds)]
    return Signature.of([*features, TensorSpec("progress", ElementType.FLOAT)], SIGNATURE.advice)


def _graph() -> Signature:
    nodes = TensorSpec("nodes", ElementType.FLOAT, (VARIES, _NODE))
    return Signature.of([nodes, TensorSpec("edges", ElementType.INT64, (VARIES, _EDGE))], SIGNATURE.advice)


PAYLOADS: Mapping[str, Payload] = {
    # LLVM's inliner: 38 int64, 304 bytes.
    "inliner": Payload(SIGNATURE, _inliner),
    # The same network's input as a model server likes it: one float tensor.
    "vector": Payload(_vector(38), _floats),
    # LLVM's register eviction: 20 tensors of 33 and one number, 3,436 bytes.
    "eviction": Payload(_eviction(), _numbers),
    "64KiB": Payload(_vector(1 << 14), _floats, 16),
    "1MiB": Payload(_vector(1 << 18), _floats, 4),
    # 20 to 200 nodes of 16 floats, as many edges.
    "graph": Payload(_graph(), _graphs),
}

FIXED: Final = ("inliner", "vector", "64KiB", "1MiB")
"""Payloads that every server can take."""


def payload(name: str) -> Payload:
    """Give the payload called ``name``.

    Raises:
        NotFoundError: no payload has this name; the message lists them.

    """
    if name not in PAYLOADS:
        raise NotFoundError(f"unknown payload {name!r}; there are {', '.join(PAYLOADS)}")
    return PAYLOADS[name]

"""A stand-in for a compiler that asks a policy once per loop how to distribute it.

    python examples/compilers/loop_distribution.py socket:policybridge.sock

The advice has as many elements as the loop has nodes. The compiler checks the advice before it follows it.
"""

import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policybridge_client import ElementType, ModelRunner, TensorSpec, open_runner

FEATURES = [
    TensorSpec("features", ElementType.FLOAT, (-1, 8)),
    TensorSpec("edges", ElementType.INT64, (-1, 2)),
]
ADVICE = TensorSpec("partition", ElementType.INT32, (-1,))


@dataclass
class Loop:
    """A loop's statements and their dependences.

    Attributes:
        name: of the loop.
        features: of each of its N nodes, float [N, 8]; statements that depend on each other in a circle are one node.
        edges: pairs of a node and a node that depends on it, int64 [E, 2].

    """

    name: str
    features: npt.NDArray[np.float32]
    edges: npt.NDArray[np.int64]


def make_loop(name: str, size: int, seed: int) -> Loop:
    """Make a loop of ``size`` nodes, about a third of whose pairs depend on each other."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(size, 8)).astype(np.float32)
    pairs = np.argwhere(np.triu(generator.random((size, size)) < 0.3, 1))
    # Nodes need not be numbered in the order of their dependences.
    return Loop(name, features, generator.permutation(size)[pairs].astype(np.int64))


def open_session(address: str, timeout: float = 60.0) -> ModelRunner:
    """Open a session; it serves any number of loops."""
    return open_runner(address, policy="loop-distribution", features=FEATURES, advice=ADVICE, timeout=timeout)


def distribute(runner: ModelRunner, loop: Loop) -> list[list[int]]:
    """Ask once, and give the nodes of each new loop, the loops in the order in which they run."""
    runner.context(loop.name)
    runner["features"] = loop.features
    runner["edges"] = loop.edges
    partition = np.asarray(runner.evaluate())
    check(loop, partition)
    return [np.flatnonzero(partition == number).tolist() for number in range(partition.max() + 1)]


def check(loop: Loop, partition: npt.NDArray[np.int32]) -> None:
    """Refuse a partition in which a node would run before one that it depends on."""
    if len(partition) != len(loop.features):
        raise ValueError(f"{loop.name} has {len(loop.features)} nodes; the advice has {len(partition)}")
    if (partition[loop.edges[:, 0]] > partition[loop.edges[:, 1]]).any():
        raise ValueError(f"{loop.name} cannot be distributed as {partition.tolist()}: a dependence is turned around")


def main() -> None:
    """Distribute three loops in one session with the server that the command line names."""
    with open_session(sys.argv[1]) as runner:
        for seed, size in enumerate([4, 1, 9]):
            loops = distribute(runner, make_loop(f"loop {seed}", size, seed))
            print(f"loop {seed}:", " | ".join(" ".join(f"S{node}" for node in nodes) for nodes in loops))


if __name__ == "__main__":
    main()

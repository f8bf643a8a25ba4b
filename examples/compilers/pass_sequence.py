"""A stand-in for a compiler that asks which passes to run next, until the policy says stop.

    python examples/compilers/pass_sequence.py socket:policybridge.sock

It has the steps of a compiler pass: embed the module (IR2Vec in POSET-RL), ask, run the advised passes.
"""

import sys

import numpy as np

from policybridge_client import ElementType, ModelRunner, TensorSpec, open_runner
from policybridge_serdes import Exploration

SUB_SEQUENCES = 34
STOP = SUB_SEQUENCES
"""The last action: it runs no sub-sequence and ends the episode."""

MOST = 34
"""Sub-sequences in one episode; after that many only `STOP` is legal."""

FEATURES = [
    TensorSpec("embedding", ElementType.FLOAT, (300,)),
    TensorSpec("mask", ElementType.INT8, (SUB_SEQUENCES + 1,)),
]
ADVICE = TensorSpec("action", ElementType.INT64)


class Module:
    """Code under optimisation: each sub-sequence of passes moves its embedding by a matrix of its own.

    Attributes:
        name: of the module.
        embedding: of its code as it is now, float [300].

    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.embedding = np.random.default_rng(seed).normal(size=300).astype(np.float32)

    def run(self, sub_sequence: int) -> None:
        """Run the passes of ``sub_sequence``."""
        shift = np.random.default_rng(1000 + sub_sequence).normal(size=300).astype(np.float32)
        self.embedding = np.tanh(self.embedding + shift)


def open_session(address: str, exploration: Exploration | None = None, timeout: float = 60.0) -> ModelRunner:
    """Open a session; it serves any number of modules, one after the other."""
    return open_runner(
        address,
        policy="pass-sequence",
        features=FEATURES,
        advice=ADVICE,
        exploration=exploration,
        timeout=timeout,
    )


def legal(done: list[int]) -> np.ndarray:
    """Give 1 for each legal action, int8 [35]: any sub-sequence but the one just run, and always `STOP`."""
    mask = np.full(SUB_SEQUENCES + 1, len(done) < MOST, np.int8)
    mask[done[-1:]] = 0
    mask[STOP] = 1
    return mask


def optimise(runner: ModelRunner, module: Module) -> list[int]:
    """Optimise ``module``, and give the sub-sequences that were run."""
    runner.context(module.name)
    done: list[int] = []
    while True:
        runner["embedding"][:] = module.embedding
        runner["mask"][:] = legal(done)
        action = int(runner.evaluate())
        if action == STOP:
            return done
        module.run(action)
        done.append(action)


def main() -> None:
    """Optimise three modules in one session with the server that the command line names."""
    with open_session(sys.argv[1]) as runner:
        for seed, name in enumerate(["parse.ll", "match.ll", "print.ll"]):
            print(name, *optimise(runner, Module(name, seed)))


if __name__ == "__main__":
    main()

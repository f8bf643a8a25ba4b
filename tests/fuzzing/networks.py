"""A target of what `policybridge embed` writes: a random network, as C under sanitizers beside ONNX Runtime."""

import tempfile
from pathlib import Path
from typing import Final

import numpy as np

_HEAD: Final = 5
"""Bytes of an input that choose the weights and the compiler; each further one is a block."""
_MOST_BLOCKS: Final = 24
_COMPILERS: Final = ("gcc", "clang-22")


def embedded(data: bytes) -> None:
    """Build the network that the bytes name; its C gives what ONNX Runtime gives."""
    # Imported late: the other targets need no ONNX.
    from policybridge_train.embedding.interface import read_policy  # noqa: PLC0415
    from tests.training.embedding.networks import BLOCKS, random_network, write_network  # noqa: PLC0415
    from tests.training.embedding.programs import (  # noqa: PLC0415
        build,
        by_onnx_runtime,
        decide,
        random_observations,
    )

    head = data[:_HEAD].ljust(_HEAD, b"\0")
    seed = int.from_bytes(head[:4], "big")
    blocks = [BLOCKS[each % len(BLOCKS)] for each in data[_HEAD : _HEAD + _MOST_BLOCKS]]
    with tempfile.TemporaryDirectory(prefix="pb-fuzz-") as scratch:
        folder = Path(scratch)
        policy = read_policy("net", write_network(folder / "policies", "net", random_network(seed, blocks)))
        observations = random_observations(policy, 50, seed)
        program = build(policy, folder, _COMPILERS[head[4] % len(_COMPILERS)])
        advice, status = decide(program, policy, observations)
        assert not status.any(), "an error in place of advice"
        np.testing.assert_allclose(advice, by_onnx_runtime(policy, observations), rtol=1e-3, atol=1e-5)

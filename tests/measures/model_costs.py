"""``python -m tests.measures.model_costs``: a model's time for a decision by the size of the batch, on one core."""

import argparse
import sys
import time
from collections.abc import Sequence
from importlib.resources import files
from itertools import pairwise
from typing import Final

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

BATCHES: Final = (1, 8, 64, 512)
WIDTHS: Final = (64, 512, 2048)
_FEATURES: Final = 40
_SECONDS: Final = 0.3
"""Of each measurement; the fastest of some is told, because others disturb it and none makes it faster."""

_TRIES: Final = 5


def main(words: Sequence[str] | None = None) -> int:
    """Measure the bundled trees, and networks of two hidden layers; tell microseconds for a decision."""
    argparse.ArgumentParser(prog="python -m tests.measures.model_costs", description=__doc__).parse_args(words)
    trees = files("policybridge_server").joinpath("bundled/inliner/1/model.onnx").read_bytes()
    print("model        " + "".join(f"{f'batch {batch}':>12}" for batch in BATCHES))
    for name, model in [("trees", trees), *((f"{width}-{width}", _network(width)) for width in WIDTHS)]:
        print(f"{name:13}" + "".join(f"{_cost(model, batch) * 1e6 / batch:12.2f}" for batch in BATCHES), flush=True)
    return 0


def _network(width: int) -> bytes:
    sizes, chance = (_FEATURES, width, width, 1), np.random.default_rng(0)
    nodes, weights, before = [], [], "x"
    for number, (rows, columns) in enumerate(pairwise(sizes)):
        weights.append(
            numpy_helper.from_array(chance.standard_normal((rows, columns)).astype(np.float32), f"w{number}")
        )
        nodes.append(helper.make_node("MatMul", [before, f"w{number}"], [f"m{number}"]))
        nodes.append(helper.make_node("Relu", [f"m{number}"], [before := f"r{number}"]))
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
        for name, size in (("x", _FEATURES), (before, 1))
    )
    graph = helper.make_graph(nodes, "network", [x], [y], weights)
    made: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()
    return made


def _cost(model: bytes, batch: int) -> float:
    """Give the seconds of one run of a batch."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    fed = {each.name: np.ones([batch, *each.shape[1:]], kinds[each.type]) for each in session.get_inputs()}
    return min(_timed(session, fed) for _ in range(_TRIES))


def _timed(
    session: "onnxruntime.InferenceSession", fed: dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.generic]]"]
) -> float:
    runs, began = 0, time.thread_time()
    while time.thread_time() - began < _SECONDS:
        session.run(None, fed)
        runs += 1
    return (time.thread_time() - began) / runs


if __name__ == "__main__":
    sys.exit(main())

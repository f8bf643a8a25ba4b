"""Policies that inference clients ask in tests, and how they ask."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tritonclient.grpc as triton  # type: ignore[import-untyped]
from onnx import TensorProto, helper
from tritonclient.utils import np_to_triton_dtype  # type: ignore[import-untyped]

from policybridge_bench.network import write_network
from tests.onnx_models import make_model, write_onnx
from tests.repositories import answering, write_python

KINDS = {
    "bool": "BOOL", "float": "FP32", "double": "FP64", "string": "BYTES", "bytes": "BYTES",
    **{f"{sign}int{bits}_t": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
NUMBERS = [kind for kind in KINDS if kind not in ("string", "bytes")]

_COUNTING = """
class Policy:
    def start(self, session):
        session.state["asked"] = 0

    def evaluate(self, observation, session):
        session.state["asked"] += 1
        if observation["x"][0] < 0:
            raise ValueError("x is negative")
        return [session.state["asked"], int(observation["x"][0]), session.policy.version]
"""


def declaring(feature: str, advice: str) -> str:
    """Write what policy.toml declares: a feature `x` and an advice `y`, each `TYPE SHAPE`."""
    specs = [(name, *text.split(" ", 1)) for name, text in (("x", feature), ("y", advice))]
    given, made = (f'{{name = "{name}", type = "{kind}", shape = {shape}}}' for name, kind, shape in specs)
    return f"features = [{given}]\nadvice = {made}\n"


def write_policies(repository: Path) -> None:
    """Write one of each sort."""
    write_network(repository, "named", packed=False)
    write_python(repository, "counts", _COUNTING, declaring("int64_t [1]", "int64_t [3]"))
    write_python(repository, "free", answering("observation['x'].sum() + int(session.options.get('add', 0))"))
    write_python(
        repository, "rows", answering("observation['x'].sum(axis=1)"), declaring("int64_t [-1, 2]", "int64_t [-1]")
    )
    write_python(
        repository, "lengths", answering("[len(t) for t in observation['x']]"), declaring("string [2]", "int64_t [2]")
    )
    write_python(repository, "context", answering("len(session.context)"), declaring("int64_t [1]", "int64_t [1]"))
    for kind in KINDS:
        write_python(repository, f"echo-{kind}", answering("observation['x']"), declaring(f"{kind} [2]", f"{kind} [2]"))
    for version in (1, 2):
        toml = declaring("int64_t [1]", "int64_t [1]") + "[aliases]\nold = 1\n"
        write_python(repository, "versions", answering("session.policy.version"), toml, version=version)
    write_masked(repository)
    write_python(repository, "broken", "import nothing_of_this_name", version=1)


def write_masked(repository: Path) -> None:
    """Write a model whose input has another name, may lack a second one, and whose scores are masked."""
    nodes = [helper.make_node("Add", ["logits", "bias"], ["scores"])]
    shape: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["batch", 3])
    model = make_model(nodes, {"logits": shape, "bias": shape}, {"scores": shape})
    toml = """
        [rename]
        logits = "x"
        [fill]
        bias = [0.0, 0.0, 5.0]
        [head]
        mask = "legal"
    """
    write_onnx(repository, "masked", model, toml)


def tensor(name: str, array: npt.NDArray[Any]) -> triton.InferInput:
    """Make an input as the client's documentation says."""
    made = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    return made.set_data_from_numpy(array)


def x(*values: int) -> list[triton.InferInput]:
    """Make the input `x` of int64."""
    return [tensor("x", np.array(values, np.int64))]

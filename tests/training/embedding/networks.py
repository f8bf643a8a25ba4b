"""Random networks of every operator that has a form in C.

Operators that jump (rounding, comparing, trees) get only tensors that are exact in both computations, so that a last
bit never becomes another choice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES: Final = 6
HEADS: Final = ("", '[head]\nscores = "logits"\n', '[head]\nscores = "probabilities"\nmask = "legal"\n')
_MODES: Final = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")
_LABELS: Final = (4, 9, -2)


@dataclass
class Network:
    """A graph that grows.

    Attributes:
        random: decides everything.
        nodes: so far.
        weights: by name.

    """

    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """Add a weight."""
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(values, dtype)
        return name

    def normal(self, *shape: int) -> str:
        """Add a weight of normal numbers, about 1 over the root of the first dimension."""
        return self.constant(self.random.normal(size=shape) / np.sqrt(max(shape[:1], default=1)))

    def add(self, operator: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; give the name of its output, or their names."""
        names = [f"v{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names


Block = Callable[[Network, str, str, int], tuple[str, int]]
"""Takes the network, its input [batch, FEATURES], the tensor so far and its width; gives the next and its width."""


def _affine(net: Network, _exact: str, x: str, width: int) -> tuple[str, int]:
    new = int(net.random.integers(2, 9))
    if net.random.random() < 0.5:
        weights = net.normal(new, width)
        return net.add("Gemm", [x, weights, net.normal(new)], transB=1, alpha=0.75, beta=1.25), new
    return net.add("Add", [net.add("MatMul", [x, net.normal(width, new)]), net.normal(new)]), new


def _activation(net: Network, _exact: str, x: str, width: int) -> tuple[str, int]:
    plain = ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Elu", "HardSigmoid", "Softplus", "Softsign", "Erf", "Abs", "Neg"]
    for name in net.random.permutation([*plain, "Celu", "Gelu", "Selu"]):
        x = net.add(str(name), [x])
    return net.add("PRelu", [x, net.normal(width)]), width


def _domains(net: Network, _exact: str, x: str, width: int) -> tuple[str, int]:
    one = net.constant(1)
    low, high = net.constant(-3), net.constant(3)
    positive = net.add("Add", [net.add("Abs", [x]), one])
    parts = [
        net.add("Exp", [net.add("Clip", [x, low, high])]),
        net.add("Log", [positive]),
        net.add("Sqrt", [positive]),
        net.add("Reciprocal", [positive]),
        net.add("Pow", [positive, net.constant(net.random.choice([0.5, 2, 3, -1.5]))]),
        net.add("Div", [x, positive]),
    ]
    return net.add("Sum", parts), width


def _several(net: Network, _exact: str, x: str, width: int) -> tuple[str, int]:
    other = net.normal(width)
    parts = [net.add(name, [x, other]) for name in ("Min", "Max", "Sub", "Mul")]
    return net.add("Mean", parts), width


def _normal(net: Network, _exact: str, x: str, width: int) -> tuple[str, int]:
    # A wide spread: of one that is nearly 0 the rounding of the input is all that is left.
    x = net.add("Add", [x, net.constant(np.arange(width))])
    x = net.add("LayerNormalization", [x, net.normal(width), net.normal(width)], axis=-1)
    mean, spread = net.normal(width), net.constant(net.random.uniform(0.5, 2, width))
    return net.add("BatchNormalization", [x, net.normal(width), net.normal(width), mean, spread]), width


def _reduce(net: Network, _exact: str, x: str, width: int) -> tuple[str, int]:
    axes = net.constant([1], np.int64)
    parts = [net.add("ReduceSum", [x, axes])]
    parts += [net.add(name, [x, axes]) for name in ("ReduceMean", "ReduceMax", "ReduceMin")]
    return net.add("Concat", [x, *parts], axis=1), width + 4


def _soft(net: Network, _exact: str, x: str, width: int) -> tuple[str, int]:
    name = str(net.random.choice(["Softmax", "LogSoftmax"]))
    return net.add(name, [x], axis=-1), width


def _shapes(net: Network, _exact: str, x: str, width: int) -> tuple[str, int]:
    wide = net.add("Concat", [x, x, x], axis=1)
    cube = net.add("Reshape", [wide, net.constant([0, 3, width], np.int64)])
    turned = net.add("Transpose", [cube], perm=[0, 2, 1])
    times = net.add("MatMul", [turned, net.normal(3, 2)])
    flat = net.add("Flatten", [times])
    halves = net.add("Split", [flat], 2, axis=1, num_outputs=2)
    ends = [net.constant([each], np.int64) for each in (1, 2 * width, 1, 2)]
    picked = net.add("Slice", [flat, *ends])
    squeezed = net.add(
        "Squeeze", [net.add("Unsqueeze", [halves[0], net.constant([1], np.int64)]), net.constant([1], np.int64)]
    )
    most = net.add("ReduceMax", [x, net.constant([1], np.int64)])
    wider = net.add("Expand", [most, net.constant([1, width], np.int64)])
    added = net.add("Add", [squeezed, wider])
    return net.add("Concat", [added, picked], axis=1), 2 * width


def _jumps(net: Network, exact: str, x: str, width: int) -> tuple[str, int]:
    halves = net.add("Mul", [exact, net.constant(0.5)])
    bounds = net.constant(np.arange(FEATURES) - 2)
    tests = [net.add(name, [halves, bounds]) for name in ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")]
    either = net.add("Or", [net.add("And", tests[:2]), net.add("Xor", tests[2:4])])
    chosen = net.add("Or", [either, net.add("IsNaN", [halves])])
    rounded = [net.add(name, [halves]) for name in ("Floor", "Ceil", "Round", "Sign")]
    picked = net.add("Where", [chosen, net.add("Sum", rounded), halves])
    whole = net.add("Cast", [net.add("Cast", [picked], to=TensorProto.INT32)], to=TensorProto.FLOAT)
    same = net.add("Cast", [net.add("Not", [tests[4]])], to=TensorProto.FLOAT)
    return net.add("Concat", [x, whole, same], axis=1), width + 2 * FEATURES


def _embedding(net: Network, exact: str, x: str, width: int) -> tuple[str, int]:
    column = net.add("Gather", [exact, net.constant([int(net.random.integers(FEATURES))], np.int64)], axis=1)
    row = net.add("Cast", [net.add("Clip", [column, net.constant(-5), net.constant(4)])], to=TensorProto.INT64)
    vector = net.add("Flatten", [net.add("Gather", [net.normal(5, 3), row], axis=0)])
    best = net.add("Cast", [net.add("ArgMax", [exact], axis=1)], to=TensorProto.FLOAT)
    least = net.add("Cast", [net.add("ArgMin", [exact], axis=1)], to=TensorProto.FLOAT)
    return net.add("Concat", [x, vector, best, least], axis=1), width + 5


def _trees(net: Network, exact: str, x: str, width: int) -> tuple[str, int]:
    targets = int(net.random.integers(1, 4))
    transform = str(net.random.choice(["NONE", "LOGISTIC", "SOFTMAX"])) if targets > 1 else "NONE"
    aggregate = str(net.random.choice(["SUM", "AVERAGE", "MIN", "MAX"]))
    attributes: dict[str, Any] = {"n_targets": targets, "post_transform": transform, "aggregate_function": aggregate}
    if net.random.random() < 0.5:
        attributes["base_values"] = net.random.normal(size=targets).tolist()
    trees: dict[str, Any] = random_trees(net.random, int(net.random.integers(1, 30)), targets, "target")
    scores = net.add("TreeEnsembleRegressor", [exact], domain="ai.onnx.ml", **attributes, **trees)
    trees = random_trees(net.random, int(net.random.integers(1, 9)), len(_LABELS), "class")
    label, chances = net.add(
        "TreeEnsembleClassifier", [exact], 2, domain="ai.onnx.ml", classlabels_int64s=_LABELS, **trees
    )
    named = net.add("Unsqueeze", [net.add("Cast", [label], to=TensorProto.FLOAT), net.constant([1], np.int64)])
    return net.add("Concat", [x, scores, chances, named], axis=1), width + targets + len(_LABELS) + 1


BLOCKS: Final[tuple[Block, ...]] = (
    _affine, _activation, _domains, _several, _normal, _reduce, _soft, _shapes, _jumps, _embedding, _trees,
)  # fmt: skip


def random_trees(random: np.random.Generator, count: int, targets: int, leaf: str) -> dict[str, list[Any]]:
    """Make the attributes of some trees; a comparison's bound is often a value that occurs."""
    made: dict[str, list[Any]] = {
        f"nodes_{name}": []
        for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    }
    made["nodes_missing_value_tracks_true"] = []
    weights: dict[str, list[Any]] = {f"{leaf}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(count):
        _grow(random, tree, targets, made, {name.partition("_")[2]: rows for name, rows in weights.items()})
    return made | weights


def _grow(
    random: np.random.Generator, tree: int, targets: int, made: dict[str, list[Any]], weights: dict[str, list[Any]]
) -> None:
    splits, node = int(random.integers(0, 12)), 0
    pending, last = [0], 0
    while pending:
        node = pending.pop(int(random.integers(len(pending))))
        is_split = splits > 0
        splits -= is_split
        children = (last + 1, last + 2) if is_split else (0, 0)
        last += 2 * is_split
        pending += children if is_split else ()
        mode = str(random.choice(_MODES)) if is_split else "LEAF"
        bound = float(random.integers(-6, 7)) / 2
        row = (tree, node, int(random.integers(FEATURES)), bound, mode, *children)
        for name, value in zip(made, row, strict=False):
            made[name].append(value)
        made["nodes_missing_value_tracks_true"].append(int(random.integers(2)))
        for target in () if is_split else range(targets):
            for name, value in zip(weights, (tree, node, target, float(random.normal())), strict=True):
                weights[name].append(value)


def random_network(seed: int, blocks: Sequence[Block] = BLOCKS, outputs: int = 3) -> onnx.ModelProto:
    """Make a network of these blocks in a random order: float[batch, FEATURES] → float[batch, outputs]."""
    net = Network(np.random.default_rng(seed))
    x, width = "observation", FEATURES
    for place in net.random.permutation(len(blocks)):
        x, width = blocks[place](net, "observation", x, width)
        # Keeps the numbers small, so that errors stay so.
        x = net.add("Tanh", [net.add("Mul", [x, net.constant(0.5)])])
    net.nodes.append(helper.make_node("Gemm", [x, net.normal(outputs, width)], ["scores"], transB=1))
    net.nodes.append(helper.make_node("Softmax", ["scores"], ["advice"], axis=-1))
    graph = helper.make_graph(
        net.nodes,
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", FEATURES])],
        [helper.make_tensor_value_info("advice", TensorProto.FLOAT, ["batch", outputs])],
        [numpy_helper.from_array(value, name) for name, value in net.weights.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.checker.check_model(model)
    return model


def write_network(repository: Path, name: str, model: onnx.ModelProto, toml: str = "") -> Path:
    """Add a policy of the network, whose input is packed of FEATURES int64 features; give the repository."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    names = ", ".join(f'"f{place}"' for place in range(FEATURES))
    pack = f"[settings.pack.observation]\nfeatures = [{names}]\n"
    (repository / name / "policy.toml").write_text(f'backend = "onnx"\n{toml}\n{pack}')
    return repository

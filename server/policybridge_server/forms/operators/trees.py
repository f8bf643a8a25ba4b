"""Tree ensembles: TreeEnsembleRegressor and TreeEnsembleClassifier."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from policybridge_forms import Aggregate, Forest, Function, Opcode
from policybridge_server.forms.builder import Tensor
from policybridge_server.forms.forest import Tree, Weight, read_trees
from policybridge_server.forms.operators.contract import Operation, Operator
from policybridge_server.forms.operators.elementwise import convert
from policybridge_server.forms.operators.reducing import softmax

_FLOAT: Final = np.dtype(np.float32)
_LEAF: Final = 0
_SPLIT: Final = 1
_NAN: Final = 3


def _regressor(op: Operation) -> Sequence[Tensor]:
    x = _input(op)
    targets = int(op.attributes.get("n_targets", 1))
    scores = _scores(op, x, "target", targets)
    transform = op.attributes.get("post_transform", b"NONE").decode()
    # With one target ONNX Runtime transforms by PROBIT alone.
    if transform != "NONE" and (targets > 1 or transform == "PROBIT"):
        scores = _transformed(op, scores, transform)
    return [convert(op, scores, _FLOAT)]


def _input(op: Operation) -> Tensor:
    (x,) = op.tensors
    if x.dtype.kind != "f":
        x = convert(op, x, _FLOAT)
    if len(x.shape) > 2 or (len(x.shape) == 2 and x.shape[0] != 1):
        raise op.refused(f"it takes {list(x.shape)}: one observation is one row")
    return x


def _scores(op: Operation, x: Tensor, leaf: str, targets: int) -> Tensor:
    """Give the sums of the leaves' weights, shape [1, targets], in the type of the thresholds."""
    attributes, build = op.attributes, op.build
    aggregate = attributes.get("aggregate_function", b"SUM").decode()
    if aggregate not in Aggregate.__members__:
        raise op.refused(f"it aggregates by {aggregate}")
    trees = read_trees(attributes, leaf, x.dtype)
    columns = max((node.feature for tree in trees for node in tree.nodes), default=-1) + 1
    if columns > x.count:
        raise op.refused(f"a tree asks for column {columns - 1} of {x.count}")
    base = attributes.get("base_values_as_tensor", attributes.get("base_values"))
    base = np.zeros(targets, x.dtype) if base is None or len(base) != targets else np.asarray(base, x.dtype)
    made = build.forest(_forest(trees, columns, targets, Aggregate[aggregate], x.dtype), x)
    if base.any():
        made = build.elementwise(Function.ADD, [made, build.constant(base.reshape(1, -1))])
    return made


def _forest(trees: Sequence[Tree], columns: int, targets: int, aggregate: Aggregate, dtype: np.dtype[Any]) -> Forest:
    nodes = [node for tree in trees for node in tree.nodes]
    leaves = [_weights(node.weights, node.threshold, targets) if not node.skip else () for node in nodes]
    links = [node.feature if node.skip else len(own) for node, own in zip(nodes, leaves, strict=True)]
    weights = [weight for own in leaves for weight in own]
    return Forest(
        dtype,
        columns,
        targets,
        aggregate,
        np.array([len(tree.nodes) for tree in trees], np.uint32),
        np.array([(_NAN if node.nan else _SPLIT) if node.skip else _LEAF for node in nodes], np.uint8),
        np.array(links, np.uint32),
        np.array([node.threshold if node.skip else 0.0 for node in nodes], dtype),
        np.array([each.target for each in weights], np.uint32),
        np.array([each.value for each in weights], dtype),
    )


def _weights(weights: Sequence[Weight], threshold: float, targets: int) -> Sequence[Weight]:
    """Give the weights of a leaf. With one target there is one: without any, ONNX Runtime adds the threshold."""
    return weights if targets > 1 else (weights[:1] or (Weight(0, threshold),))


def _transformed(op: Operation, scores: Tensor, transform: str) -> Tensor:
    if transform == "LOGISTIC":
        return op.build.elementwise(Function.SIGMOID, [scores])
    if transform != "SOFTMAX":
        raise op.refused(f"it transforms by {transform}")
    return softmax(op, scores, scores.count)


def _classifier(op: Operation) -> Sequence[Tensor]:
    x, build = _input(op), op.build
    labels = op.attributes.get("classlabels_int64s")
    count = len(labels) if labels else len(op.attributes.get("classlabels_strings", []))
    transform = op.attributes.get("post_transform", b"NONE").decode()
    if count <= 2:
        raise op.refused("it has fewer than three classes; export its trees as a TreeEnsembleRegressor")
    scores = _scores(op, x, "class", count)
    label = Tensor(np.dtype(object), (1,))
    if labels:
        best, label = build.new(np.int64, (1,)), build.new(np.int64, (1,))
        build.emit(Opcode.ARGUMENT, best, [scores], [1, count], Function.MAXIMUM)
        build.emit(Opcode.GATHER, label, [build.constant(labels, np.int64), best], [1, count, 1, 1])
    if transform != "NONE":
        scores = _transformed(op, scores, transform)
    return [label, convert(op, scores, _FLOAT)]


OPERATORS: Final[dict[str, Operator]] = {"TreeEnsembleClassifier": _classifier, "TreeEnsembleRegressor": _regressor}

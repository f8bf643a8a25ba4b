"""The graph in C: each operator by its writer, in order."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from policybridge_core.errors import PreconditionError, UnsupportedError
from policybridge_server.forms.graph import Graph, Node
from policybridge_train.embedding.body import Body, Tensor
from policybridge_train.embedding.operators import activations, elementwise, linear, reducing, shaping, trees
from policybridge_train.embedding.operators.contract import Operation, Operator
from policybridge_train.embedding.text import has_c_type

OPERATORS: Final[Mapping[str, Operator]] = {
    **activations.OPERATORS,
    **elementwise.OPERATORS,
    **linear.OPERATORS,
    **reducing.OPERATORS,
    **shaping.OPERATORS,
    **trees.OPERATORS,
}


def compute(graph: Graph, body: Body, inputs: Mapping[str, Tensor], output: str) -> Tensor:
    """Write what computes ``output`` of ``inputs``; give its tensor.

    Raises:
        UnsupportedError: an operator has no form in C; the message names it, and those that have one.

    """
    nodes = _needed(graph.nodes, output)
    unknown = sorted({node.operator for node in nodes} - OPERATORS.keys())
    if unknown:
        raise UnsupportedError(
            f"the model has the operator{'s' * (len(unknown) > 1)} {', '.join(unknown)}, without a form in C; "
            "operators with one are "
            f"{', '.join(sorted(OPERATORS))}"
        )
    known = {name: body.constant(np.asarray(value)) for name, value in graph.constants.items()} | dict(inputs)
    read = {output, *(name for node in nodes for name in node.inputs)}
    for name, tensor in inputs.items():
        if name not in read:
            body.unread(tensor)
    for node in nodes:
        for name, tensor in zip(node.outputs, _written(node, graph, body, known), strict=False):
            known[name] = tensor
            if name not in read:
                body.unread(tensor)
    if output not in known:
        raise PreconditionError(f"the model does not compute its output {output!r}")
    return known[output]


def _needed(nodes: Iterable[Node], output: str) -> list[Node]:
    """Give the nodes that the output depends on, in their order."""
    wanted, kept = {output}, []
    for node in reversed(list(nodes)):
        if wanted & set(node.outputs):
            wanted |= set(node.inputs)
            kept.append(node)
    return kept[::-1]


def _written(node: Node, graph: Graph, body: Body, known: Mapping[str, Tensor]) -> Iterable[Tensor]:
    inputs = [known[name] if name else None for name in node.inputs]
    used = len([name for name in node.outputs if name])
    for tensor in inputs:
        if tensor is not None and not has_c_type(tensor.dtype):
            raise UnsupportedError(f"the operator {node.operator} takes {tensor.dtype}, which has no form in C")
    outputs = len(node.outputs) if node.operator == "Split" else used
    return OPERATORS[node.operator](Operation(body, node.operator, inputs, outputs, node.attributes, graph.opset))

"""The graph in instructions: each operator by its own, in order."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from policybridge_core.errors import PreconditionError, UnsupportedError
from policybridge_forms.words import NUMBERS
from policybridge_server.forms.builder import Builder, Tensor
from policybridge_server.forms.graph import Graph, Node
from policybridge_server.forms.operators import activations, elementwise, linear, reducing, shaping, trees
from policybridge_server.forms.operators.contract import Operation, Operator

OPERATORS: Final[Mapping[str, Operator]] = MappingProxyType(
    {
        **activations.OPERATORS,
        **elementwise.OPERATORS,
        **linear.OPERATORS,
        **reducing.OPERATORS,
        **shaping.OPERATORS,
        **trees.OPERATORS,
    }
)


def compute(graph: Graph, build: Builder, inputs: Mapping[str, Tensor], output: str) -> Tensor:
    """Add what computes ``output`` of ``inputs``; give its tensor.

    Raises:
        UnsupportedError: an operator has no form; the message names it, and those that have one.

    """
    nodes = _needed(graph.nodes, output)
    unknown = sorted({node.operator for node in nodes} - OPERATORS.keys())
    if unknown:
        raise UnsupportedError(
            f"the model has the operator{'s' * (len(unknown) > 1)} {', '.join(unknown)}, without a portable form; "
            f"operators with one are {', '.join(sorted(OPERATORS))}"
        )
    known = {name: build.constant(value) for name, value in graph.constants.items()} | dict(inputs)
    for node in nodes:
        known.update(zip(node.outputs, _added(node, graph, build, known), strict=False))
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


def _added(node: Node, graph: Graph, build: Builder, known: Mapping[str, Tensor]) -> Iterable[Tensor]:
    inputs = [known[name] if name else None for name in node.inputs]
    used = len([name for name in node.outputs if name])
    for tensor in inputs:
        if tensor is not None and np.dtype(tensor.dtype) not in NUMBERS:
            raise UnsupportedError(f"the operator {node.operator} takes {tensor.dtype}, which has no portable form")
    outputs = len(node.outputs) if node.operator == "Split" else used
    return OPERATORS[node.operator](Operation(build, node.operator, inputs, outputs, node.attributes, graph.opset))

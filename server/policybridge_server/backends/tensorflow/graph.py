"""Refusing a SavedModel that does more than compute: a graph can read and write files, and call Python.

Every SavedModel holds operators that save it, so only the operators that can run are checked: those that the
signature's outputs, the restoring of variables and the initialization depend on.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from policybridge_core.errors import PreconditionError

_REFUSED = re.compile(
    r"WriteFile|ReadFile|MatchingFiles|Save.*|MergeV2Checkpoints|ShardedFilename.*|.*Dataset(V\d+)?|.*Reader(V\d+)?"
    r"|Print(V\d+)?|.*Summary.*|(Eager)?PyFunc(Stateless)?|ImmutableConst|Debug.*|Rpc.*|.*Socket.*|.*DeleteFile.*"
)
_RESTORING = "__saved_model_init_op"


def refuse_side_effects(meta: Any, outputs: Iterable[str]) -> None:
    """Check the operators of the ``MetaGraphDef`` that run when the tensors ``outputs`` are evaluated.

    Raises:
        PreconditionError: one of them does more than compute.

    """
    entries = [*outputs, meta.saver_def.restore_op_name]
    if _RESTORING in meta.signature_def:
        entries += [tensor.name for tensor in meta.signature_def[_RESTORING].outputs.values()]
    for node in _reached(meta.graph_def, entries):
        if _REFUSED.fullmatch(node.op):
            raise PreconditionError(f"the operator {node.op} ({node.name}) does more than compute")


def _reached(graph: Any, entries: Iterable[str]) -> Iterator[Any]:
    """Give the nodes that ``entries`` depend on, and the nodes of all functions that these call."""
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name: function for function in graph.library.function}
    waiting = [nodes[name] for name in {_node_name(entry) for entry in entries} if name in nodes]
    seen_nodes, seen_functions = {node.name for node in waiting}, set[str]()
    while waiting:
        node = waiting.pop()
        yield node
        for name in {_node_name(source) for source in node.input} - seen_nodes:
            if name in nodes:
                seen_nodes.add(name)
                waiting.append(nodes[name])
        for name in set(_called(node)) - seen_functions:
            if name in functions:
                seen_functions.add(name)
                waiting.extend(functions[name].node_def)


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _called(node: Any) -> Iterator[str]:
    # A node whose operator has a function's name calls that function.
    yield node.op
    for value in node.attr.values():
        yield from (each.name for each in (value.func, *value.list.func) if each.name)

"""Exported programs: from the archive to a function of the inputs.

The graph itself is called, with its weights as arguments, in 30 µs. PyTorch's module of a program takes 90
µs, and evaluates Python expressions of the archive to check its inputs.
"""

import io
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.export.pt2_archive._package import load_pt2
from torch.utils._pytree import tree_unflatten

from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_server.backends.tensors import Port, TensorSettings, choose_output, element_type
from policybridge_server.backends.torch.archive import check_program

_STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class Program(NamedTuple):
    """An exported program: its inputs in order, its output, and the function that computes the output."""

    inputs: list[Port]
    output: Port
    call: Callable[..., torch.Tensor]


class _Range(NamedTuple):
    """The sizes for which a dimension of an input was exported, inclusive."""

    argument: int
    axis: int
    low: float
    high: float


def load_program(data: bytes, settings: TensorSettings) -> Program:
    """Load the ``.pt2`` archive ``data``.

    Raises:
        Exception: it cannot be loaded, or it is refused.

    """
    check_program(data)
    programs = load_pt2(io.BytesIO(data)).exported_programs
    if len(programs) != 1:
        raise PreconditionError(f"it holds {len(programs)} programs: {', '.join(programs)}; a policy is one")
    (program,) = programs.values()
    kinds = {spec.kind for spec in program.graph_signature.input_specs} - {*_STATE, InputKind.USER_INPUT}
    changed = [spec.target for spec in program.graph_signature.output_specs if spec.kind != OutputKind.USER_OUTPUT]
    if kinds or changed:
        # A model that changes itself answers the same observation differently later.
        raise PreconditionError(f"it keeps state: {', '.join(map(str, [*kinds, *changed]))}")
    return _program(program, settings)


def _program(program: torch.export.ExportedProgram, settings: TensorSettings) -> Program:
    nodes = {node.name: node.meta.get("val") for node in program.graph.nodes}
    specs = program.graph_signature.input_specs
    names = [spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT]
    outputs = [spec.arg.name for spec in program.graph_signature.output_specs]
    places = _places(outputs, program.call_spec.out_spec, settings.output)
    output = choose_output(list(places), settings)
    held = {**program.state_dict, **program.constants}
    state = [held[str(spec.target)].detach() for spec in specs if spec.kind in _STATE]
    if [spec.kind is InputKind.USER_INPUT for spec in specs] != [False] * len(state) + [True] * len(names):
        raise PreconditionError("its inputs do not all follow its weights")
    inputs, place = [_port(name, nodes[name]) for name in names], places[output]
    call = _checked(program.graph_module.forward, state, place, _ranges(program, names, nodes))
    return Program(inputs, _port(output, nodes[outputs[place]]), call)


def _places(outputs: Sequence[str], structure: Any, wanted: str | None) -> dict[str, int]:
    """Give the place of each output by its name: its key if ``forward`` returns a dict, otherwise its node's."""
    nodes = {name: place for place, name in enumerate(outputs)}
    returned = tree_unflatten(list(range(len(outputs))), structure) if structure else None
    if wanted in nodes or not isinstance(returned, dict):
        return nodes
    # A key may hold several outputs.
    is_flat = all(type(key) is str and type(place) is int for key, place in returned.items())
    return dict(returned) if is_flat else nodes


def _port(name: str, tensor: Any) -> Port:
    if not isinstance(tensor, torch.Tensor):
        raise PreconditionError(f"{name} is {type(tensor).__name__} and no tensor")
    try:
        dtype = torch.empty(0, dtype=tensor.dtype).numpy().dtype
    except TypeError:
        raise PreconditionError(f"{name} has the type {tensor.dtype}, which is no element type") from None
    return Port(name, element_type(name, dtype), [dim if isinstance(dim, int) else str(dim) for dim in tensor.shape])


def _ranges(program: torch.export.ExportedProgram, names: Sequence[str], nodes: dict[str, Any]) -> list[_Range]:
    ranges = []
    known = {str(symbol): limits for symbol, limits in program.range_constraints.items()}
    for argument, name in enumerate(names):
        for axis, dim in enumerate(nodes[name].shape):
            limits = known.get(str(dim))
            if limits is not None:
                ranges.append(_Range(argument, axis, _number(limits.lower), _number(limits.upper)))
    # In older exports the range of a free dimension begins at 2, because PyTorch specializes on 0 and 1.
    return [each for each in ranges if each.low > 2 or each.high < math.inf]


def _number(limit: Any) -> float:
    try:
        return float(int(limit))
    except (OverflowError, TypeError, ValueError, AttributeError):
        return math.inf if limit > 0 else -math.inf


def _checked(
    forward: Callable[..., Any], state: Sequence[torch.Tensor], index: int, ranges: Sequence[_Range]
) -> Callable[..., torch.Tensor]:
    def call(*feeds: torch.Tensor) -> torch.Tensor:
        for each in ranges:
            size = feeds[each.argument].shape[each.axis]
            if not each.low <= size <= each.high:
                cure = "" if each.axis else "; for batches of any size export it with torch.export.Dim.DYNAMIC"
                raise PolicyFailedError(
                    f"it was exported for sizes {each.low:g} to {each.high:g}, not for {size}{cure}"
                )
        result: torch.Tensor = forward(*state, *feeds)[index]
        return result

    return call

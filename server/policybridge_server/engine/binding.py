"""Binding: a client's features to a model's inputs by name, computed once when a session opens."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError
from policybridge_core.text import meant
from policybridge_serdes import ElementType, Layout, Signature, TensorSpec, Values
from policybridge_serdes.values import fit, shape_fits
from policybridge_server.backends.contract import ModelSignature, batch_cure
from policybridge_server.engine.head import ONE_SCORE
from policybridge_server.repository import StoredVersion

_PACKING: Final = ("onnx", "torch", "tensorflow", "litert")
"""Backends that have ``settings.pack``."""

Move = Callable[[Values], Values]
"""Turns a batch of the client's records into one of the model's."""


@dataclass(frozen=True)
class Binding:
    """How a client's observations become a model's inputs.

    Attributes:
        move: makes the model's records.
        advice: the layout that the model is asked to give.
        ignored: the client's features that the model does not know.

    """

    move: Move
    advice: Layout
    ignored: tuple[str, ...]


def bind(client: Signature, model: ModelSignature, version: StoredVersion) -> Binding:
    """Bind ``client`` to ``model`` by name, after the version's ``rename`` and ``fill``.

    Raises:
        InvalidError: an input is neither sent nor filled, or a type or shape does not fit; both specs are named.

    """
    advice = client.advice if model.advice is None else model.advice
    if not _same_bytes(client.advice, advice):
        cure = _head(client, model, version) or _cure(advice, version)
        raise InvalidError(f"{version} gives {advice}; the client takes {client.advice}{cure}")
    if model.features is None:
        return Binding(_unchanged, Layout((advice,)), ())
    sources = _sources(client.features, model.features, version)
    used = {source.name for source in sources.values()}
    ignored = tuple(name for name in client.features.by_name if name not in used)
    return Binding(_move(client.features, model.features, sources, version), Layout((advice,)), ignored)


def _pack(missing: TensorSpec, model: Layout, version: StoredVersion) -> str:
    """Return the hint of an error that lists the features of a packed input, if one of them is missing."""
    for name, names in _packed(version):
        if missing.name in names:
            wanted = [str(model.by_name[each]) for each in names if each in model.by_name]
            return (
                f"; settings.pack in policy.toml makes the model's input {name} of {len(wanted)} features: send them"
                f" each by its name, or add a [fill] for those that clients lack: {', '.join(wanted)}"
            )
    return ""


def _turned(missing: TensorSpec, version: StoredVersion) -> str:
    """Return the hint that ``rename`` has the names the other way round."""
    for name, feature in version.config.rename.items():
        if feature == missing.name:
            pair = f"{json.dumps(missing.name)} = {json.dumps(name)}"
            return f"; [rename] in policy.toml is input = feature, so {pair}"
    return ""


def _packed(version: StoredVersion) -> Iterator[tuple[str, list[object]]]:
    """Give each packed input with the names of its features."""
    packs = version.config.settings.get("pack")
    # The settings belong to the backend: another distribution's may use this key differently.
    for name, pack in packs.items() if isinstance(packs, dict) else ():
        stated = pack.get("features", ()) if isinstance(pack, dict) else ()
        given = stated if isinstance(stated, list) else ()
        yield name, [each.get("name") if isinstance(each, dict) else each for each in given]


def _head(client: Signature, model: ModelSignature, version: StoredVersion) -> str:
    """Return the hint that a head is missing, if the client takes one integer and the model gives another type."""
    given, wanted = model.advice, client.advice
    is_choice = wanted.fixed and wanted.count == 1 and wanted.type.value.startswith("int")
    if given is None or version.config.head is not None or given.type.is_text or not is_choice:
        return ""
    is_one = given.fixed and given.count == 1
    if given.type.dtype.kind == "f":
        one = f"{given.name} is one number; {ONE_SCORE}, and then" if is_one else f"if {given.name} scores the choices,"
        return f"; {one} [head] in policy.toml makes the best choice the advice"
    choice = f'[head] in policy.toml with scores = "choice" and choices = N makes it {wanted.type.value}'
    return f"; if {given.name} is one of N choices, {choice}" if is_one and given.type is not wanted.type else ""


def _unchanged(values: Values) -> Values:
    return values


def _sources(client: Layout, model: Layout, version: StoredVersion) -> dict[str, TensorSpec]:
    """Find the feature for each input; inputs that get their fill value are left out."""
    sources = {}
    for spec in model.specs:
        name = version.config.rename.get(spec.name, spec.name)
        source = client.by_name.get(name)
        if source is not None:
            if not _fits(spec, source):
                cure = _conversion(spec, source, version) or _cure(spec, version)
                raise InvalidError(f"{version} takes {spec}; the client sends {source}{cure}")
            sources[spec.name] = source
        elif spec.name not in version.config.fill:
            sent, unused = ", ".join(client.by_name), (each for each in client.by_name if each not in model.by_name)
            raise InvalidError(
                f"{version} needs {spec}, which the client does not send; {meant(name, unused)}it sends {sent}"
                f"{_pack(spec, model, version)}{_turned(spec, version)}"
            )
    return sources


def _conversion(wanted: TensorSpec, given: TensorSpec, version: StoredVersion) -> str:
    """Return the hint that a pack of one feature converts it, if it has another type of number than the input."""
    converts = wanted.type is not given.type and not wanted.type.is_text and not given.type.is_text
    is_one = wanted.fixed and given.fixed and wanted.count == given.count == 1 and len(wanted.shape) < 2
    packed = any(wanted.name in names for _, names in _packed(version))
    if version.config.backend not in _PACKING or packed or not (converts and is_one):
        return ""
    table = f"[settings.pack.{wanted.name}] with features = [{json.dumps(given.name)}]"
    kind = "" if given.type is ElementType.INT64 else f" and type = {json.dumps(given.type.value)}"
    return f"; {table}{kind} in policy.toml converts it"


def _cure(model: TensorSpec, version: StoredVersion) -> str:
    config = version.config
    declared = config.features is not None or config.advice is not None
    return "" if declared else batch_cure(model)


def _fits(wanted: TensorSpec, given: TensorSpec) -> bool:
    return wanted.type is given.type and shape_fits(_squeezed(wanted.shape), _squeezed(given.shape))


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    # LLVM writes scalars as [1] and vectors as [1, n]; exported models often have no such leading 1.
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


def _same_bytes(wanted: TensorSpec, given: TensorSpec) -> bool:
    """Whether advice of the spec ``given`` may be sent to a client that reads ``wanted``."""
    if wanted.fixed != given.fixed or wanted.type is not given.type:
        return False
    return _squeezed(wanted.shape) == _squeezed(given.shape) or (not wanted.fixed and _fits(wanted, given))


def _move(client: Layout, model: Layout, sources: Mapping[str, TensorSpec], version: StoredVersion) -> Move:
    fills = {spec.name: fit(spec, version.config.fill[spec.name]) for spec in model.specs if spec.name not in sources}
    if not (client.fixed and model.fixed):
        return _move_tensors(model, sources, fills)
    offsets = {spec.name: client.dtype.fields[spec.name][1] for spec in client.specs}  # type: ignore[index]
    moves = [(offsets[sources[spec.name].name] if spec.name in sources else None) for spec in model.specs]
    start = _side_by_side(moves, model)
    if start is not None and not fills:
        return _move_view(client, model, start)
    return _move_bytes(client, model, moves, fills)


def _side_by_side(moves: list[int | None], model: Layout) -> int | None:
    """Give the offset of the model's record in the client's record, if the client's holds it in one piece."""
    if not moves or moves[0] is None:
        return None
    ends = np.cumsum([0, *(spec.size for spec in model.specs)])[:-1].tolist()
    return moves[0] if moves == [moves[0] + end for end in ends] else None


def _move_view(client: Layout, model: Layout, start: int) -> Move:
    if client.dtype == model.dtype:
        return _unchanged
    stride, dtype = client.size, model.dtype

    def view(values: Values) -> Values:
        seen: Values = np.ndarray(len(values), dtype, values, start, (stride,))
        return seen

    return view


def _move_bytes(client: Layout, model: Layout, moves: list[int | None], fills: Mapping[str, Any]) -> Move:
    """Gather by one index over words of the largest width that all tensors are multiples of."""
    template = np.zeros(1, model.dtype)
    for name, value in fills.items():
        template[name] = value
    starts = [model.dtype.fields[spec.name][1] for spec in model.specs]  # type: ignore[index]
    word = math.gcd(8, client.size, model.size, *starts, *(move for move in moves if move is not None))
    into: list[int] = []
    out_of: list[int] = []
    for spec, start, move in zip(model.specs, starts, moves, strict=True):
        if move is not None:
            into.extend(range(start // word, (start + spec.size) // word))
            out_of.extend(range(move // word, (move + spec.size) // word))
    into_index, out_of_index = np.array(into, np.intp), np.array(out_of, np.intp)
    words, blank = np.dtype(f"V{word}"), template.view(f"V{word}")

    def gather(values: Values) -> Values:
        made = np.tile(blank, (len(values), 1))
        made[:, into_index] = values.view(words).reshape(len(values), -1)[:, out_of_index]
        return made.view(model.dtype).reshape(len(values))

    return gather


def _move_tensors(model: Layout, sources: Mapping[str, TensorSpec], fills: Mapping[str, Any]) -> Move:
    def move(values: Values) -> Values:
        made: Values = np.empty(len(values), model.dtype)
        for spec in model.specs:
            for row in range(len(values)):
                given = values[sources[spec.name].name][row] if spec.name in sources else fills[spec.name]
                made[spec.name][row] = with_rank(given, len(spec.shape))
        return made

    return move


def with_rank(array: npt.NDArray[Any], rank: int) -> npt.NDArray[Any]:
    """Give ``array`` with ``rank`` dimensions: leading dimensions of 1 are added or left out."""
    more = rank - array.ndim
    return array.reshape((1,) * more + array.shape[max(-more, 0) :]) if more else array

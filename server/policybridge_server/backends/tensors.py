"""Converts a batch's records to inputs, and a model's output to advice, for the backends of tensor frameworks.

An input is the feature of the same name. With ``[settings.pack.INPUT]`` it is several features, scalars and vectors,
side by side and converted to the input's type: 38 named inputs cost ONNX Runtime 46 µs a call, one packed tensor 7 µs.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_serdes import VARIES, ElementType, Layout, TensorSpec, Values
from policybridge_server.backends.contract import Batch, ModelSignature, batch_cure

Array = npt.NDArray[Any]

_KNOWN: Final = ", ".join(kind.value for kind in ElementType)
_NUMBERS: Final = ", ".join(kind.value for kind in ElementType if not kind.is_text)


class PackedFeature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A feature that is a part of an input; if ``type`` is absent, the feature has the pack's type."""

    name: str
    type: str | None = None
    shape: list[Annotated[int, msgspec.Meta(ge=1)]] = msgspec.field(default_factory=lambda: [1])


class Pack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One input that consists of several features in this order; a bare name is a feature of one ``type`` element."""

    features: list[str | PackedFeature]
    type: str = "int64_t"

    def specs(self, name: str) -> tuple[TensorSpec, ...]:
        """Give the features of the input ``name``.

        Raises:
            PreconditionError: an element type is unknown.

        """
        described = [PackedFeature(each) if isinstance(each, str) else each for each in self.features]
        return tuple(
            TensorSpec(each.name, _packed_type(name, each.type or self.type), tuple(each.shape)) for each in described
        )


def _packed_type(name: str, text: str) -> ElementType:
    try:
        kind = ElementType(text)
    except ValueError:
        kind = None
    if kind is None or kind.is_text:
        raise PreconditionError(f"settings.pack.{name}.type is {text!r}; element types are {_NUMBERS}")
    return kind


class TensorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[settings]`` of every tensor backend.

    Attributes:
        output: the name of the output that is the advice; absent: the model's only output.
        threads: how many threads work on one operator.
        batch: whether the first dimension of all inputs counts observations; absent: yes if the model leaves it open.
        pack: input → the features that form it.

    """

    output: str | None = None
    threads: int = 1
    batch: bool | None = None
    pack: dict[str, Pack] = {}


class Port(NamedTuple):
    """One input or output as the model's file declares it; a dimension that is not an integer varies."""

    name: str
    type: ElementType
    dims: Sequence[object]


class Run(NamedTuple):
    """Adjacent features of one type in an input.

    Attributes:
        column: the record type whose field ``column`` spans the features.
        elements: their slice of the flat input.

    """

    column: np.dtype[Any]
    elements: slice


@dataclass(frozen=True)
class Input:
    """How one input is fed.

    Attributes:
        spec: the input's spec, for one observation.
        features: the features that form the input; empty: the input gets zeros.
        runs: the parts of a flat input whose features have one type; empty if a feature's shape varies: then the
            features' tensors are gathered one by one.

    """

    spec: TensorSpec
    features: tuple[TensorSpec, ...]
    runs: tuple[Run, ...] = ()

    @property
    def column(self) -> np.dtype[Any] | None:
        """The record type of the only run: a batch's records, viewed as it, are the input; ``None``: not one run."""
        return self.runs[0].column if len(self.runs) == 1 else None


class Interface:
    """Converts between a model's inputs and output, and features and advice.

    Attributes:
        batched: whether a batch may hold more than one observation.
        signature: the features, packed ones by their own names, and the advice.
        inputs: how each input is fed.

    Raises:
        PreconditionError: ``settings.pack`` names no input, or packs another number of features than the input has.

    """

    def __init__(
        self, inputs: Sequence[Port], output: Port, settings: TensorSettings, unused: Collection[str] = ()
    ) -> None:
        """Prepare for ``inputs`` in their order; inputs named in ``unused`` are not features and are fed zeros."""
        self.batched = _batched([*inputs, output], settings)
        specs = [self._spec(port) for port in inputs]
        _check_packs(settings.pack, specs)
        members = [(spec, () if spec.name in unused else _features(spec, settings.pack)) for spec in specs]
        features = Layout.of(feature for _, those in members for feature in those)
        self.signature = ModelSignature(features, self._spec(output))
        self.inputs = _place(members, features)

    def _spec(self, port: Port) -> TensorSpec:
        dims = port.dims[1:] if self.batched else port.dims
        return TensorSpec(port.name, port.type, tuple(dim if isinstance(dim, int) else VARIES for dim in dims))

    def feeds(self, values: Values) -> list[Array]:
        """Give one contiguous array per input: shape [n, …] for a batched model, else the input's own shape."""
        return [self._feed(each, values) for each in self.inputs]

    def _feed(self, each: Input, values: Values) -> Array:
        if each.column is not None:
            fed = values.view(each.column)["column"]
        else:
            fed = _joined(each, values) if each.runs else _gathered(each, values)
        # Not np.ascontiguousarray: it turns a scalar into a vector.
        return np.asarray(fed if self.batched else fed[0], each.spec.type.dtype, order="C")

    def advice(self, batch: Batch, result: Array) -> Values:
        """Make records of the model's output for the whole batch.

        Raises:
            PolicyFailedError: the output has another type or size than the model declared.

        """
        (spec,), count = batch.advice.specs, len(batch.values)
        if result.dtype != spec.type.dtype:
            raise PolicyFailedError(f"the model gave {result.dtype} for {spec}")
        if spec.fixed:
            if result.size != count * spec.count:
                raise PolicyFailedError(f"the model gave shape {list(result.shape)} for {count} times {spec}")
            advice: Values = np.ndarray(count, batch.advice.dtype, np.ascontiguousarray(result))
            return advice
        advice = np.empty(count, batch.advice.dtype)
        for row, value in enumerate(np.split(result, count) if self.batched else [result[np.newaxis]]):
            advice[row] = (value[0, ...],)
        return advice


class TensorModel:
    """A model behind an interface; a subclass evaluates and closes."""

    inline: bool | None = None

    def __init__(self, interface: Interface) -> None:
        self._interface = interface
        self.batched = interface.batched
        self.signature = interface.signature


def choose_output(names: Sequence[str], settings: TensorSettings) -> str:
    """Give the name of the output that is the advice.

    Raises:
        PreconditionError: the settings name an output that the model lacks, or name none and the model has several.

    """
    if settings.output is None and len(names) == 1:
        return names[0]
    if settings.output is None:
        raise PreconditionError(
            f"the model has several outputs, {', '.join(names)}; say in policy.toml which one is the advice: "
            f"`output = {json.dumps(names[0])}` under [settings]"
        )
    if settings.output not in names:
        raise PreconditionError(f"settings.output is {settings.output!r}; the model's outputs are {', '.join(names)}")
    return settings.output


def element_type(name: str, dtype: npt.DTypeLike) -> ElementType:
    """Give the element type for the numpy type of the tensor ``name``; numpy's ``object`` stands for byte strings.

    Raises:
        PreconditionError: no element type corresponds to ``dtype``.

    """
    wanted = np.dtype(dtype)
    for kind in ElementType:
        if kind is not ElementType.STRING and kind.dtype == wanted:
            return kind
    raise PreconditionError(f"{name} has the type {wanted}, which is not one of the element types {_KNOWN}")


def _batched(ports: Sequence[Port], settings: TensorSettings) -> bool:
    if settings.batch is not None:
        return settings.batch
    first = {port.dims[0] if port.dims else 1 for port in ports}
    return len(first) == 1 and not isinstance(next(iter(first)), int)


def _check_packs(packs: Mapping[str, Pack], specs: Sequence[TensorSpec]) -> None:
    known = {spec.name: spec for spec in specs}
    for name, pack in packs.items():
        if name not in known:
            raise PreconditionError(
                f"settings.pack names the input {name!r}; the model's inputs are {', '.join(known)}"
            )
        count = sum(spec.count for spec in pack.specs(name))
        if known[name].shape not in ((count,), (VARIES,)) and (known[name].shape, count) != ((), 1):
            numbers = "" if count == len(pack.features) else f", {count} elements,"
            raise PreconditionError(
                f"settings.pack packs {len(pack.features)} features{numbers} into the input {known[name]}"
                f"{batch_cure(known[name])}"
            )


def _features(spec: TensorSpec, packs: Mapping[str, Pack]) -> tuple[TensorSpec, ...]:
    return packs[spec.name].specs(spec.name) if spec.name in packs else (spec,)


def _place(members: Sequence[tuple[TensorSpec, tuple[TensorSpec, ...]]], layout: Layout) -> list[Input]:
    """Find the place of each input's features in a record. They are adjacent, so that packing needs only views."""
    inputs, offset = [], 0
    for spec, features in members:
        runs: tuple[Run, ...] = ()
        if layout.fixed and features == (spec,):
            # One feature keeps its shape; several become a vector.
            runs = (Run(span(spec.type.dtype, spec.shape, offset, layout.size), slice(0, spec.count)),)
        elif layout.fixed and features:
            # An open dimension of the model has the length of the features.
            shape = (sum(feature.count for feature in features),) if spec.shape else ()
            runs = _runs(features, shape, offset, layout.size)
            spec = TensorSpec(spec.name, spec.type, shape)  # noqa: PLW2901
        inputs.append(Input(spec, features, runs))
        offset += sum(feature.size for feature in features)
    return inputs


def _runs(features: Sequence[TensorSpec], shape: tuple[int, ...], offset: int, size: int) -> tuple[Run, ...]:
    """Find the runs of an input of this ``shape``: a vector, or a scalar, which is one feature."""
    runs, start = [], 0
    for kind, group in groupby(features, lambda spec: spec.type):
        count = sum(spec.count for spec in group)
        runs.append(Run(span(kind.dtype, (count,) if shape else (), offset, size), slice(start, start + count)))
        offset += count * kind.dtype.itemsize
        start += count
    return tuple(runs)


def span(element: np.dtype[Any], shape: tuple[int, ...], offset: int, size: int) -> np.dtype[Any]:
    """Give a record type of ``size`` bytes whose one field ``column`` is at ``offset``."""
    fields: Any = {"names": ["column"], "formats": [(element, shape)], "offsets": [offset], "itemsize": size}
    made: np.dtype[Any] = np.dtype(fields)
    return made


def _joined(each: Input, values: Values) -> Array:
    joined = np.empty((len(values), each.runs[-1].elements.stop), each.spec.type.dtype)
    for run in each.runs:
        np.copyto(joined[:, run.elements], values.view(run.column)["column"], casting="unsafe")
    return joined


def _gathered(each: Input, values: Values) -> Array:
    if not each.features:
        return np.zeros((len(values), *map(abs, each.spec.shape)), each.spec.type.dtype)
    if each.features == (each.spec,):
        return np.stack(list(values[each.spec.name]))
    count = len(values)
    joined = np.concatenate([values[feature.name].reshape(count, -1) for feature in each.features], axis=1)
    return joined if each.spec.shape else joined.reshape(count)

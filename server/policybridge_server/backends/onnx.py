"""Backend `onnx`: ONNX models in ONNX Runtime, one thread per operator unless ``policy.toml`` asks for more.

An input is a feature of the same name; or, with ``[settings.pack.INPUT]``, several features side by side, converted to
the input's type: 38 named inputs cost ONNX Runtime 46 µs a call, one packed tensor 7 µs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from policybridge_serdes import VARIES, ElementType, Layout, TensorSpec, Values
from policybridge_serdes.errors import PolicyFailedError, PreconditionError
from policybridge_server.backends.contract import Batch, ModelSignature, convert_settings
from policybridge_server.repository import PolicyConfig

_ONNX_TYPES = {
    f"tensor({kind.value.removesuffix('_t')})": kind for kind in ElementType if kind is not ElementType.BYTES
}


class Pack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The features, each of one element of ``type``, that one input is made of, in this order."""

    features: list[str]
    type: str = "int64_t"


class OnnxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[settings]``.

    Attributes:
        file: the model in the version's folder.
        output: the output that is the advice; absent: the only one.
        threads: per operator.
        batch: whether the first dimension of all inputs is one of observations; absent: if they share its name.
        pack: inputs that are made of several features.

    """

    file: str = "model.onnx"
    output: str | None = None
    threads: int = 1
    batch: bool | None = None
    pack: dict[str, Pack] = {}


@dataclass(frozen=True)
class _Input:
    """One input of the model: the features that it is made of, and where they lie in a record."""

    name: str
    dtype: np.dtype[Any]
    specs: tuple[TensorSpec, ...]


class OnnxBackend:
    """Loads ``.onnx`` files."""

    runs_code: ClassVar[bool] = False

    def load(self, artifact: Path, config: PolicyConfig) -> "OnnxModel":
        """Load the model and find out its signature."""
        settings: OnnxSettings = convert_settings(config, OnnxSettings)
        file = artifact / settings.file
        if not file.is_file():
            raise PreconditionError(f"there is no model {file}")
        try:
            session = ort.InferenceSession(str(file), _options(settings), providers=["CPUExecutionProvider"])
        except Exception as error:
            # ONNX Runtime's exceptions have no common base but Exception.
            raise PreconditionError(f"{file} cannot be loaded: {error}") from error
        return OnnxModel(session, settings)


def _options(settings: OnnxSettings) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return options


class OnnxModel:
    """A session of ONNX Runtime behind the model contract."""

    inline: bool | None = None

    def __init__(self, session: ort.InferenceSession, settings: OnnxSettings) -> None:
        self._session = session
        output = _output(session, settings)
        self.batched = _batched([*session.get_inputs(), output], settings)
        self._inputs = [self._input(node, settings.pack) for node in session.get_inputs()]
        self._outputs = [output.name]
        features = Layout.of(spec for each in self._inputs for spec in each.specs)
        self.signature = ModelSignature(features, self._spec(output))
        self._advice_dtype = Layout((self._spec(output),)).dtype
        self._columns = _columns(self._inputs, features) if features.fixed else {}

    def _spec(self, node: ort.NodeArg) -> TensorSpec:
        dims = node.shape[1:] if self.batched else node.shape
        shape = tuple(dim if isinstance(dim, int) else VARIES for dim in dims)
        return TensorSpec(node.name, _element_type(node), shape)

    def _input(self, node: ort.NodeArg, packs: Mapping[str, Pack]) -> _Input:
        spec = self._spec(node)
        pack = packs.get(node.name)
        if pack is None:
            return _Input(node.name, spec.type.dtype, (spec,))
        if spec.shape not in ((len(pack.features),), (VARIES,)):
            raise PreconditionError(f"{len(pack.features)} features are packed into the input {spec}")
        specs = tuple(TensorSpec(name, ElementType(pack.type)) for name in pack.features)
        return _Input(node.name, spec.type.dtype, specs)

    def evaluate(self, batch: Batch) -> Values:
        """Run the model once for all observations of the batch."""
        feeds = {each.name: self._feed(each, batch.values) for each in self._inputs}
        try:
            (result,) = self._session.run(self._outputs, feeds)
        except Exception as error:
            raise PolicyFailedError(f"ONNX Runtime: {error}") from error
        return self._advice(batch, result)

    def _feed(self, each: _Input, values: Values) -> npt.NDArray[Any]:
        column = self._columns.get(each.name)
        fed = np.stack(list(values[each.name])) if column is None else values.view(column)["column"]
        return np.ascontiguousarray(fed if self.batched else fed[0], each.dtype)

    def _advice(self, batch: Batch, result: npt.NDArray[Any]) -> Values:
        count = len(batch.values)
        (spec,) = batch.advice.specs
        if spec.fixed:
            if result.size != count * spec.count:
                raise PolicyFailedError(f"the model gave shape {list(result.shape)} for {count} times {spec}")
            advice: Values = np.ndarray(count, self._advice_dtype, np.ascontiguousarray(result))
            return advice
        advice = np.empty(count, self._advice_dtype)
        for row, value in enumerate(np.split(result, count) if self.batched else [result[np.newaxis]]):
            advice[row] = (value[0, ...],)
        return advice

    def close(self) -> None:
        """Free the session's memory."""
        del self._session


def _output(session: ort.InferenceSession, settings: OnnxSettings) -> ort.NodeArg:
    outputs = {node.name: node for node in session.get_outputs()}
    if settings.output is None and len(outputs) == 1:
        return next(iter(outputs.values()))
    if settings.output not in outputs:
        raise PreconditionError(f"settings.output is {settings.output!r}; the model's outputs are {', '.join(outputs)}")
    return outputs[settings.output]


def _batched(nodes: list[ort.NodeArg], settings: OnnxSettings) -> bool:
    if settings.batch is not None:
        return settings.batch
    first = {node.shape[0] if node.shape else 1 for node in nodes}
    return len(first) == 1 and not isinstance(next(iter(first)), int)


def _element_type(node: ort.NodeArg) -> ElementType:
    if node.type not in _ONNX_TYPES:
        raise PreconditionError(f"{node.name} has the type {node.type}; supported are {', '.join(_ONNX_TYPES)}")
    return _ONNX_TYPES[node.type]


def _columns(inputs: list[_Input], features: Layout) -> dict[str, np.dtype[Any]]:
    """Give for each input a record type with one field, ``column``, over all its features.

    Features of one input lie side by side in a record, so that a view is all that packing takes.
    """
    columns, offset = {}, 0
    for each in inputs:
        first = each.specs[0]
        shape = first.shape if len(each.specs) == 1 else (len(each.specs),)
        field = (first.type.dtype, shape)
        columns[each.name] = np.dtype(
            {"names": ["column"], "formats": [field], "offsets": [offset], "itemsize": features.size}
        )
        offset += sum(spec.size for spec in each.specs)
    return columns

"""Backend `onnx`: ONNX models in ONNX Runtime, one thread per operator unless ``policy.toml`` asks for more."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import onnxruntime as ort

from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_serdes import ElementType, Values
from policybridge_server.backends.artifacts import artifact_file, loading
from policybridge_server.backends.contract import Batch, convert_settings
from policybridge_server.backends.onnx.bound import BoundBatch
from policybridge_server.backends.onnx.model_file import missing_files, replace_initializers
from policybridge_server.backends.tensors import Interface, Port, TensorModel, TensorSettings, choose_output
from policybridge_server.repository import PolicyConfig

_ONNX_TYPES = {
    f"tensor({kind.value.removesuffix('_t')})": kind for kind in ElementType if kind is not ElementType.BYTES
}


_MOST_BOUND = 64
"""Observations in the largest batch with bound arrays; larger batches gain nothing by binding."""


class OnnxSettings(TensorSettings, frozen=True, forbid_unknown_fields=True):
    """``[settings]``.

    Attributes:
        file: the model in the version's folder.
        providers: ONNX Runtime's execution providers, the preferred one first.
        provider_options: provider → its options.

    """

    file: str = "model.onnx"
    providers: list[str] = msgspec.field(default_factory=lambda: ["CPUExecutionProvider"])
    provider_options: dict[str, dict[str, str | int | float | bool]] = msgspec.field(default_factory=dict)


class OnnxBackend:
    """Loads ``.onnx`` files."""

    runs_code: ClassVar[bool] = False

    def load(self, artifact: Path, config: PolicyConfig) -> "OnnxModel":
        """Load the model and find out its signature."""
        settings: OnnxSettings = convert_settings(config, OnnxSettings)
        providers = _providers(settings)
        file = artifact_file(artifact, settings.file)
        with loading(file), _missing_files_named(file):
            session = ort.InferenceSession(str(file), _options(settings), providers=providers)
        _check_providers(session, settings)
        return OnnxModel(session, settings)

    def replace_weights(self, artifact: Path, config: PolicyConfig, weights: bytes | memoryview) -> None:
        """Replace the initializers of the model."""
        settings: OnnxSettings = convert_settings(config, OnnxSettings)
        file = artifact_file(artifact, settings.file)
        model = replace_initializers(file.read_bytes(), weights)
        file.unlink()
        file.write_bytes(model)


@contextmanager
def _missing_files_named(file: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        missing = ", ".join(map(repr, missing_files(file)))
        if not missing:
            raise
        # ONNX Runtime's message has the folder's path; the folder of a publication exists only for its duration.
        raise PreconditionError(
            f"its tensors are in other files, and the version's folder has no {missing}; put them into it, at "
            f"the same place beside {file.name} as when it was exported"
        ) from error


def _options(settings: OnnxSettings) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    # Log only fatal errors: others are raised as well, and the probe sends models inputs that they may refuse.
    options.log_severity_level = 4
    return options


def _providers(settings: OnnxSettings) -> list[tuple[str, dict[str, Any]]]:
    available = ort.get_available_providers()
    for name in settings.providers:
        if name not in available:
            raise PreconditionError(
                f"settings.providers names {name!r}; the installed onnxruntime has {', '.join(available)}"
            )
    unused = settings.provider_options.keys() - settings.providers
    if unused:
        raise PreconditionError(
            f"settings.provider_options names {', '.join(sorted(unused))}; settings.providers does not"
        )
    return [
        (name, {key: _text(value) for key, value in settings.provider_options.get(name, {}).items()})
        for name in settings.providers
    ]


def _text(value: object) -> str:
    # ONNX Runtime takes strings only; a boolean is "0" or "1".
    return str(int(value)) if isinstance(value, bool) else str(value)


def _check_providers(session: ort.InferenceSession, settings: OnnxSettings) -> None:
    # ONNX Runtime leaves out a provider whose driver is missing, without an error, and uses the CPU instead.
    lost = [name for name in settings.providers if name not in session.get_providers()]
    if lost:
        raise PreconditionError(f"ONNX Runtime could not start {', '.join(lost)}; its log on stderr has the reason")


class OnnxModel(TensorModel):
    """A session of ONNX Runtime as a model."""

    def __init__(self, session: ort.InferenceSession, settings: OnnxSettings) -> None:
        self._session = session
        outputs = {node.name: node for node in session.get_outputs()}
        output = outputs[choose_output(list(outputs), settings)]
        inputs = [_port(node) for node in session.get_inputs()]
        super().__init__(Interface(inputs, _port(output), settings))
        self._names = [port.name for port in inputs]
        self._outputs = [output.name]
        self._bindable = _bindable(self._interface, output.shape)
        self._bound: dict[int, BoundBatch] = {}

    def evaluate(self, batch: Batch) -> Values:
        """Run the model once for all observations of the batch."""
        count = len(batch.values)
        try:
            if self._bindable and count <= _MOST_BOUND:
                return (self._bound.get(count) or self._bind(count)).run(batch.values)
            feeds = dict(zip(self._names, self._interface.feeds(batch.values), strict=True))
            (result,) = self._session.run(self._outputs, feeds)
        except Exception as error:
            raise PolicyFailedError(f"ONNX Runtime: {error}") from error
        return self._interface.advice(batch, result)

    def _bind(self, count: int) -> BoundBatch:
        self._bound[count] = BoundBatch(self._session, self._interface, self._outputs[0], count)
        return self._bound[count]

    def close(self) -> None:
        """Free the session's memory."""
        self._bound.clear()
        del self._session


def _bindable(interface: Interface, declared: Sequence[object]) -> bool:
    # LightGBM's converter declares [1] for one label of each observation. ONNX Runtime gives as many as there are,
    # but not into an array that it is given.
    if interface.batched and all(isinstance(size, int) for size in declared[:1]):
        return False
    features, advice = interface.signature.features, interface.signature.advice
    return features is not None and features.fixed and advice is not None and advice.fixed


def _port(node: ort.NodeArg) -> Port:
    if node.type not in _ONNX_TYPES:
        raise PreconditionError(
            f"{node.name} has the type {node.type}; supported are {', '.join(_ONNX_TYPES)}{_cure(node.type)}"
        )
    return Port(node.name, _ONNX_TYPES[node.type], node.shape)


def _cure(kind: str) -> str:
    if "seq(map(" in kind:
        # The default of the converters for classifiers.
        return ". Convert a classifier with zipmap=False, which makes it a tensor"
    if "float16" in kind:
        return ". Convert a model to float16 with keep_io_types=True, which leaves its inputs and outputs float32"
    return ""

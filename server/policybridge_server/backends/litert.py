"""Backend `litert`: ``.tflite`` models, with or without the ``output_spec.json`` of LLVM's ModelUnderTrainingRunner.

A model made for a TFLite build of LLVM serves any LLVM. The name of an input, without its prefix and its port, is the
name of LLVM's feature; the first entry of ``output_spec.json`` names the tensor of the decision.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_serdes import Values
from policybridge_server.backends.artifacts import (
    TRAINING_ONLY,
    LoggedOutput,
    artifact_file,
    feature_names,
    loading,
    read_output_spec,
)
from policybridge_server.backends.contract import Batch, convert_settings
from policybridge_server.backends.tensors import (
    Interface,
    Port,
    TensorModel,
    TensorSettings,
    choose_output,
    element_type,
)
from policybridge_server.repository import PolicyConfig

Details = Mapping[str, Any]


class LitertSettings(TensorSettings, frozen=True, forbid_unknown_fields=True):
    """``[settings]``; ``file`` is the model in the version's folder."""

    file: str = "model.tflite"


class LitertBackend:
    """Loads ``.tflite`` files."""

    runs_code: ClassVar[bool] = False

    def load(self, artifact: Path, config: PolicyConfig) -> "LitertModel":
        """Load the model and determine its signature."""
        settings: LitertSettings = convert_settings(config, LitertSettings)
        file = artifact_file(artifact, settings.file)
        with loading(file):
            interpreter = Interpreter(model_content=file.read_bytes(), num_threads=settings.threads)
            return LitertModel(interpreter, settings, read_output_spec(artifact))


class _Names(NamedTuple):
    """Tensor's name → name of the input or output, from the model's signatures; empty if the model has none."""

    inputs: dict[str, str]
    outputs: dict[str, str]

    @classmethod
    def of(cls, interpreter: Interpreter) -> "_Names":
        names = cls({}, {})
        for key in interpreter.get_signature_list():
            runner = interpreter.get_signature_runner(key)
            inputs, outputs = runner.get_input_details(), runner.get_output_details()
            names.inputs.update({details["name"]: name for name, details in inputs.items()})
            names.outputs.update({details["name"]: name for name, details in outputs.items()})
        return names


class LitertModel(TensorModel):
    """An interpreter behind the model contract."""

    def __init__(self, interpreter: Interpreter, settings: LitertSettings, logged: LoggedOutput | None) -> None:
        self._interpreter = interpreter
        named = _Names.of(interpreter)
        inputs = interpreter.get_input_details()
        output, name = _output(interpreter.get_output_details(), named.outputs, settings, logged)
        plain = feature_names([each["name"] for each in inputs], ["action", "serving_default"])
        ports = [_port(named.inputs.get(each["name"], name), each) for name, each in zip(plain, inputs, strict=True)]
        unused = TRAINING_ONLY if logged is not None else frozenset[str]()
        super().__init__(Interface(ports, _port(name, output), settings, unused))
        self._inputs: list[int] = [each["index"] for each in inputs]
        self._output: int = output["index"]
        self._shapes: list[tuple[int, ...]] = []

    def evaluate(self, batch: Batch) -> Values:
        """Run the model once for all observations. Each change of the batch's size costs 5–50 µs."""
        feeds = self._interface.feeds(batch.values)
        try:
            self._resize([each.shape for each in feeds])
            for index, each in zip(self._inputs, feeds, strict=True):
                self._interpreter.set_tensor(index, each)
            self._interpreter.invoke()
            result = self._interpreter.get_tensor(self._output)
        except (ValueError, RuntimeError) as error:
            raise PolicyFailedError(f"LiteRT: {error}") from error
        return self._interface.advice(batch, np.asarray(result))

    def _resize(self, shapes: list[tuple[int, ...]]) -> None:
        if shapes == self._shapes:
            return
        # If a step fails, the interpreter is left with neither the old shapes nor the new.
        self._shapes = []
        for index, shape in zip(self._inputs, shapes, strict=True):
            self._interpreter.resize_tensor_input(index, shape)
        self._interpreter.allocate_tensors()
        self._shapes = shapes

    def close(self) -> None:
        """Free the model's memory."""
        del self._interpreter


def _output(
    outputs: Sequence[Details], names: Mapping[str, str], settings: LitertSettings, logged: LoggedOutput | None
) -> tuple[Details, str]:
    """Find the output that is the advice, and its name."""
    tensors = {each["name"]: each for each in outputs}
    if settings.output is not None or logged is None:
        named = {names.get(name, name.partition(":")[0]): each for name, each in tensors.items()}
        name = choose_output(list(named), settings)
        return named[name], name
    wanted = f"{logged.spec.name}:{logged.port}"
    if wanted not in tensors:
        raise PreconditionError(f"output_spec.json names the tensor {wanted!r}; the outputs are {', '.join(tensors)}")
    return tensors[wanted], logged.logging_name


def _port(name: str, details: Details) -> Port:
    signature = details["shape_signature"] if len(details["shape_signature"]) else details["shape"]
    dims = [int(dim) if dim >= 0 else "varies" for dim in signature]
    return Port(name, element_type(name, details["dtype"]), dims)

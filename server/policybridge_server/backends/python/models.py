"""The models that a Python policy consults: files of its version, each loaded by a backend.

    [settings.models]
    node = "node.pt2"              # this file declares its own inputs and output

    [settings.models.task]         # this file does not: the same keys as in a policy.toml of its own
    file = "task.safetensors"
    features = [{name = "x", type = "float", shape = [-1, 16]}]
    advice = {name = "scores", type = "float", shape = [-1, 2]}
    settings = {module = "package.module:Class"}

The policy calls a model with one array for each input, by the inputs' names: ``models["node"](x=array)`` gives the
output. Each array has exactly the shape that the file declares, including the batch dimension if there is one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_core.errors import PolicyBridgeError, PolicyFailedError, PreconditionError
from policybridge_serdes import Layout, tensor
from policybridge_serdes.values import pack
from policybridge_server.backends.contract import Batch, Model, load_backend
from policybridge_server.repository import PolicyConfig

_BACKENDS = {".onnx": "onnx", ".pt": "torch", ".pt2": "torch", ".safetensors": "torch", ".tflite": "litert"}


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[settings.models.NAME]``.

    Attributes:
        file: the name of the file in the version's folder.
        backend: the name of the backend that loads the file; absent: the suffix of the file decides.
        features: the inputs, if the file does not declare them.
        advice: the output, if the file does not declare it.
        settings: settings of the backend, besides ``file`` and ``batch = false``.

    """

    file: str
    backend: str | None = None
    features: list[dict[str, Any]] | None = None
    advice: dict[str, Any] | None = None
    settings: dict[str, Any] = {}


class ConsultedModel:
    """A model as a function of arrays.

    Args:
        name: the model's name in the policy.
        model: the loaded model.

    Raises:
        PreconditionError: the model does not declare its inputs and output.

    """

    def __init__(self, name: str, model: Model) -> None:
        signature = model.signature
        if signature.features is None or signature.advice is None:
            raise PreconditionError(
                f"the model {name!r} has no declared inputs or output; settings.models.{name} may declare them"
            )
        self.features = signature.features
        self.advice = signature.advice
        self._name = name
        self._model = model
        self._answer = Layout((signature.advice,))

    def __call__(self, **inputs: npt.ArrayLike) -> npt.NDArray[Any]:
        """Give the output; ``inputs`` has one array, or a value that numpy converts to one, for each input by name.

        Raises:
            PolicyFailedError: the names are not those of the inputs, or the model fails; the message names the model.

        """
        if inputs.keys() != self.features.by_name.keys():
            takes, given = ", ".join(self.features.by_name), ", ".join(inputs)
            raise PolicyFailedError(f"the model {self._name!r} takes {takes}; it was given {given or 'nothing'}")
        try:
            # No sessions: a backend that evaluates tensors does not read them.
            values = self._model.evaluate(Batch(pack(self.features, inputs), (), self._answer))
        except PolicyBridgeError as error:
            raise PolicyFailedError(f"the model {self._name!r}: {error}") from error
        return np.asarray(tensor(self.advice, values))

    def close(self) -> None:
        """Free the model's resources."""
        self._model.close()


def load_models(artifact: Path, models: Mapping[str, str | ModelConfig]) -> dict[str, ConsultedModel]:
    """Load the models of the version in the folder ``artifact``, by their names.

    Raises:
        NotFoundError: there is no such backend.
        PreconditionError: a model cannot be loaded (the message names its file), or a package is not installed.

    """
    return {
        name: ConsultedModel(name, _load(artifact, ModelConfig(given) if isinstance(given, str) else given))
        for name, given in models.items()
    }


def _load(artifact: Path, config: ModelConfig) -> Model:
    backend = config.backend or _BACKENDS.get(Path(config.file).suffix)
    if backend is None:
        raise PreconditionError(
            f"settings.models names {config.file!r}; without `backend` its file is one of {', '.join(_BACKENDS)}"
        )
    # No batches: the first dimension has the size that the policy chooses, such as the nodes of one graph, and does not
    # count observations.
    settings = {"batch": False, **config.settings, "file": config.file}
    asked = PolicyConfig(backend, features=config.features, advice=config.advice, settings=settings)
    return load_backend(backend).load(artifact, asked)

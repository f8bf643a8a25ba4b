"""The models that a Python policy consults: files of its version, each loaded by the backend of its kind.

    [settings.models]
    node = "node.pt2"              # it says itself what it takes and gives

    [settings.models.task]         # a file that does not say it: as in a policy.toml of its own
    file = "task.safetensors"
    features = [{name = "x", type = "float", shape = [-1, 16]}]
    advice = {name = "scores", type = "float", shape = [-1, 2]}
    settings = {module = "package.module:Class"}

The policy calls a model by its inputs' names, with arrays of exactly the shapes that the file declares, a dimension for
batches included: ``models["node"](x=array)`` gives the output.
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
        file: in the version's folder; its suffix says which backend loads it.
        features: the inputs, where the file does not tell them.
        advice: the output, likewise.
        settings: for the backend to read.

    """

    file: str
    features: list[dict[str, Any]] | None = None
    advice: dict[str, Any] | None = None
    settings: dict[str, Any] = {}


class ConsultedModel:
    """A model as a function of arrays.

    Args:
        name: by which the policy knows it.
        model: what is asked.

    Raises:
        PreconditionError: the model does not say what it takes and gives.

    """

    def __init__(self, name: str, model: Model) -> None:
        signature = model.signature
        if signature.features is None or signature.advice is None:
            raise PreconditionError(f"the model {name!r} does not say what it takes and gives")
        self.features = signature.features
        self.advice = signature.advice
        self._name = name
        self._model = model
        self._answer = Layout((signature.advice,))

    def __call__(self, **inputs: npt.ArrayLike) -> npt.NDArray[Any]:
        """Give the output for one array, or what becomes one, per input.

        Raises:
            PolicyFailedError: the inputs are not those of the model, or it fails; the message names the model.

        """
        if inputs.keys() != self.features.by_name.keys():
            takes, given = ", ".join(self.features.by_name), ", ".join(inputs)
            raise PolicyFailedError(f"the model {self._name!r} takes {takes}; it was given {given or 'nothing'}")
        try:
            # No backend of tensors looks at the sessions.
            values = self._model.evaluate(Batch(pack(self.features, inputs), (), self._answer))
        except PolicyBridgeError as error:
            raise PolicyFailedError(f"the model {self._name!r}: {error}") from error
        return np.asarray(tensor(self.advice, values))

    def close(self) -> None:
        """Give back what the model holds."""
        self._model.close()


def load_models(artifact: Path, models: Mapping[str, str | ModelConfig]) -> dict[str, ConsultedModel]:
    """Load the models of the version in the folder ``artifact``, by their names.

    Raises:
        PreconditionError: one cannot be loaded, and the message names its file; or a package is not installed.

    """
    return {
        name: ConsultedModel(name, _load(artifact, ModelConfig(given) if isinstance(given, str) else given))
        for name, given in models.items()
    }


def _load(artifact: Path, config: ModelConfig) -> Model:
    backend = _BACKENDS.get(Path(config.file).suffix)
    if backend is None:
        raise PreconditionError(
            f"settings.models names {config.file!r}; a model's file is one of {', '.join(_BACKENDS)}"
        )
    # One observation may be a whole graph: its first dimension is the policy's, and no batch of observations.
    settings = {"batch": False, **config.settings, "file": config.file}
    asked = PolicyConfig(backend, features=config.features, advice=config.advice, settings=settings)
    return load_backend(backend).load(artifact, asked)

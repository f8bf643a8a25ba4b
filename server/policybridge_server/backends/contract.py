"""The backend contract, and the table of those that there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import msgspec
import numpy as np

from policybridge_core.errors import PreconditionError
from policybridge_core.plugins import Table
from policybridge_serdes import Exploration, Layout, PolicyVersion, TensorSpec, Values
from policybridge_server.repository import PolicyConfig


@dataclass
class SessionView:
    """What a policy may know of the session that asks.

    Attributes:
        id: the session's id.
        policy: the version that answers it.
        context: the function or module that is being compiled, as it changes.
        options: what the client gave for the policy to read.
        labels: what the client gave for people to find the session by.
        state: for the policy alone, as long as the episode: the session, unless policy.toml says otherwise.
        exploration: how the advice head departs from the best advice; ``None`` for not at all.
        generator: what it draws from.

    """

    id: str
    policy: PolicyVersion
    context: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    exploration: Exploration | None = None
    generator: np.random.Generator | None = None


@dataclass(frozen=True)
class ModelSignature:
    """What a model takes and gives; ``None`` where it takes or gives whatever the client declares."""

    features: Layout | None
    advice: TensorSpec | None


@dataclass(frozen=True)
class Batch:
    """Observations that are evaluated together.

    Attributes:
        values: one record per observation, shape [n], of the model's features; of the client's where the model
            declares none.
        sessions: whose observation each one is.
        advice: the layout of the answer: the model's advice, or the client's where the model declares none.

    """

    values: Values
    sessions: Sequence[SessionView]
    advice: Layout


class Model(Protocol):
    """A loaded version.

    Attributes:
        signature: what it takes and gives.
        batched: whether a batch may hold more than one observation.
        inline: whether it may run on the loop thread: yes, no, or (None) if it proves fast when it is loaded.

    """

    signature: ModelSignature
    batched: bool
    inline: bool | None

    def evaluate(self, batch: Batch) -> Values:
        """Give one record of ``batch.advice`` per observation. Not called from two threads at once.

        Raises:
            Exception: there is no advice; an error that is no PolicyBridgeError is reported as the policy's failure.

        """
        ...

    def close(self) -> None:
        """Give back what the model holds."""
        ...


@runtime_checkable
class StatefulModel(Protocol):
    """A model that wants to know when a session is over."""

    def end(self, session: SessionView) -> None:
        """Forget ``session``; called once for each session that was evaluated, in the thread that evaluates."""
        ...


class Backend(Protocol):
    """Loads artifacts of one framework.

    Attributes:
        runs_code: whether an artifact is code of its author; such a backend needs the operator's permission.

    """

    runs_code: ClassVar[bool]

    def load(self, artifact: Path, config: PolicyConfig) -> Model:
        """Load the version in the folder ``artifact``.

        Raises:
            PreconditionError: it cannot be loaded; the message names the file and what is wrong.

        """
        ...


@runtime_checkable
class WeightsBackend(Protocol):
    """A backend that can give an artifact other weights."""

    def replace_weights(self, artifact: Path, config: PolicyConfig, weights: bytes) -> None:
        """Put ``weights``, tensors by name in safetensors, into the folder ``artifact``, a copy made for it.

        Its files may be hard links to those of another version: they are replaced, never written to.

        Raises:
            InvalidError: these are no safetensors.
            PreconditionError: a tensor's name, type or shape is not the artifact's.

        """
        ...


BACKENDS = Table(
    kind="backend",
    group="policybridge.backends",
    own={
        "litert": "policybridge_server.backends.litert:LitertBackend [litert]",
        "onnx": "policybridge_server.backends.onnx.backend:OnnxBackend [onnx]",
        "python": "policybridge_server.backends.python.backend:PythonBackend [server]",
        "tensorflow": "policybridge_server.backends.tensorflow.backend:TensorflowBackend [tensorflow]",
        "torch": "policybridge_server.backends.torch.backend:TorchBackend [torch]",
    },
)


def load_backend(name: str) -> Backend:
    """Make the backend called ``name``.

    Raises:
        NotFoundError: there is none of that name.
        PreconditionError: the package that it needs is not installed; the message says how to install it.

    """
    return cast("type[Backend]", BACKENDS.load(name))()


def convert_settings(config: PolicyConfig, kind: type[msgspec.Struct]) -> Any:
    """Read the backend's ``settings`` of a ``policy.toml`` as a ``kind``.

    Raises:
        PreconditionError: a setting is unknown or of the wrong type.

    """
    try:
        return msgspec.convert(config.settings, kind)
    except msgspec.ValidationError as error:
        raise PreconditionError(f"[settings] of policy.toml, for the backend {config.backend}: {error}") from error


def declared_signature(config: PolicyConfig) -> ModelSignature:
    """Give the signature that ``policy.toml`` declares, ``None`` for what it leaves open."""
    features = None if config.features is None else Layout.of(TensorSpec.from_json(spec) for spec in config.features)
    return ModelSignature(features, None if config.advice is None else TensorSpec.from_json(config.advice))

"""The backend contract, and the table of the backends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import msgspec
import numpy as np

from policybridge_core.errors import PreconditionError
from policybridge_core.plugins import Table
from policybridge_serdes import VARIES, Exploration, Layout, PolicyVersion, TensorSpec, Values
from policybridge_server.backends.load_order import keep_load_order
from policybridge_server.repository import PolicyConfig


@dataclass
class SessionView:
    """What a policy may know of the session that asks for advice.

    Attributes:
        id: the session's id.
        policy: the version that answers.
        context: the function or module that is being compiled now.
        options: the client's options, for the policy to read.
        labels: the client's labels, for people to find the session by.
        state: the policy's own memory for one episode. An episode is the session, unless policy.toml says otherwise.
        episode: the context with which the present episode began; ``None`` before the first.
        exploration: how the advice head departs from the best advice; ``None``: it does not.
        generator: the advice head's random numbers; ``None`` without exploration.
        file: what the session compiles; see `SessionOptions.file`.
        alias: that the client named, `latest` by default; empty: it named a version or a digest.
        reporter: the client whose word the session is; empty: one whom the operator trusts. See `Access.reporter`.
        failures: evaluations that failed.

    """

    id: str
    policy: PolicyVersion
    context: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    episode: str | None = None
    exploration: Exploration | None = None
    generator: np.random.Generator | None = None
    file: str = ""
    alias: str = ""
    reporter: str = ""
    failures: int = 0


@dataclass(frozen=True)
class ModelSignature:
    """A model's features and advice; ``None`` where the model accepts what the client declares.

    Attributes:
        features: what it takes.
        advice: what it gives.

    """

    features: Layout | None
    advice: TensorSpec | None


@dataclass(frozen=True)
class Batch:
    """Observations that are evaluated together.

    Attributes:
        values: one record per observation, shape [n]: the model's features, or the client's where the model declares
            none.
        sessions: the session of each observation.
        advice: the layout of the advice: the model's, or the client's where the model declares none.

    """

    values: Values
    sessions: Sequence[SessionView]
    advice: Layout


class Model(Protocol):
    """A loaded version.

    Attributes:
        signature: its features and its advice.
        batched: whether a batch may hold more than one observation.
        inline: whether the model may run on the loop thread. ``None``: yes if it proves fast when it is loaded.

    """

    signature: ModelSignature
    batched: bool
    inline: bool | None

    def evaluate(self, batch: Batch) -> Values:
        """Give one record of ``batch.advice`` per observation, shape [n]. Never called from two threads at once.

        Raises:
            Exception: there is no advice. Any error but a PolicyBridgeError is reported as the policy's failure.

        """

    def close(self) -> None:
        """Free what the model holds."""


@runtime_checkable
class StatefulModel(Protocol):
    """A model that is told when a session is over."""

    def end(self, session: SessionView) -> None:
        """Forget ``session``. Called once for each session with a decision, in the thread that calls ``evaluate``."""


class Backend(Protocol):
    """Loads artifacts of one framework.

    Attributes:
        runs_code: whether loading an artifact runs its author's code, for which the operator must give permission.

    """

    runs_code: ClassVar[bool]

    def load(self, artifact: Path, config: PolicyConfig) -> Model:
        """Load the version in the folder ``artifact``.

        Raises:
            PreconditionError: it cannot be loaded; the message names the file and says what is wrong.

        """


@runtime_checkable
class WeightsBackend(Protocol):
    """A backend that can replace the weights of an artifact."""

    def replace_weights(self, artifact: Path, config: PolicyConfig, weights: bytes | memoryview) -> None:
        """Replace the weights in the folder ``artifact`` by ``weights``, tensors by name in safetensors.

        The folder is a copy made for this, but its files may be hard links to another version's: replace a file, never
        write into it.

        Raises:
            InvalidError: ``weights`` are not safetensors.
            PreconditionError: the artifact has no tensor of that name, type and shape.

        """


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
"""The backends by the names that ``policy.toml`` calls them."""


def load_backend(name: str) -> Backend:
    """Make the backend called ``name``.

    Raises:
        NotFoundError: no backend has that name; the message lists the names there are.
        PreconditionError: a package that it needs is not installed; the message says how to install it.

    """
    keep_load_order()
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
    """Give the signature that ``policy.toml`` declares; ``None`` for what it does not declare."""
    features = None if config.features is None else Layout.of(TensorSpec.from_json(spec) for spec in config.features)
    return ModelSignature(features, None if config.advice is None else TensorSpec.from_json(config.advice))


def batch_cure(spec: TensorSpec) -> str:
    """Give the end of an error's message for a tensor whose open first dimension may be the batch's; else nothing."""
    if spec.shape[:1] != (VARIES,):
        return ""
    said = "say `batch = true` under [settings] in policy.toml"
    return f". If the first dimension of {spec.name} counts observations, {said}"

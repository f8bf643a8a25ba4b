"""The backend contract, and the table of the backends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import msgspec

from policybridge_core.errors import PreconditionError
from policybridge_core.fields import cure_of
from policybridge_core.plugins import Table
from policybridge_forms import Drawing
from policybridge_serdes import VARIES, Exploration, Layout, PolicyVersion, TensorSpec, Values
from policybridge_server.backends.load_order import keep_load_order
from policybridge_server.repository import PolicyConfig


@dataclass
class SessionView:
    """The properties of a session that a policy may use.

    Attributes:
        id: the session's id.
        policy: the session's version.
        context: the function or module of the next decisions.
        options: the client's options for the policy.
        labels: the client's labels; people find the session by them.
        state: the policy's own state for one episode. An episode is the session, unless policy.toml says otherwise.
        episode: the context with which the present episode began; ``None`` before the first.
        exploration: how the advice head departs from the best advice; ``None``: never.
        drawing: of the advice head; ``None`` without exploration.
        file: the file that the client compiles; see `SessionOptions.file`.
        alias: the client's alias, `latest` by default; empty: it named a version or a digest.
        reporter: the client that reports for the session; empty: one that the operator trusts. See `Access.reporter`.
        failures: number of failed evaluations.

    """

    id: str
    policy: PolicyVersion
    context: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    episode: str | None = None
    exploration: Exploration | None = None
    drawing: Drawing | None = None
    file: str = ""
    alias: str = ""
    reporter: str = ""
    failures: int = 0


@dataclass(frozen=True)
class ModelSignature:
    """A model's features and advice; ``None`` if the model accepts the client's declaration.

    Attributes:
        features: the model's inputs.
        advice: the model's output.

    """

    features: Layout | None
    advice: TensorSpec | None


@dataclass(frozen=True)
class Batch:
    """Observations that are evaluated together.

    Attributes:
        values: one record per observation, shape [n]: the model's features, or the client's if the model declares
            none.
        sessions: the session of each observation.
        advice: the layout of the advice: the model's, or the client's if the model declares none.

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
            Exception: there is no advice. Any error except a PolicyBridgeError is reported as the policy's failure.

        """

    def close(self) -> None:
        """Free the model's resources."""


@runtime_checkable
class StatefulModel(Protocol):
    """A model that is told of the end of each session."""

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
            PreconditionError: it cannot be loaded; the message names the file and the fault.

        """


@runtime_checkable
class WeightsBackend(Protocol):
    """A backend that can replace the weights of an artifact."""

    def replace_weights(self, artifact: Path, config: PolicyConfig, weights: bytes | memoryview) -> None:
        """Replace the weights in the folder ``artifact`` by ``weights``, tensors by name in safetensors.

        The folder is a private copy, but its files may be hard links to another version's: replace a file, never
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
        NotFoundError: no backend has that name; the message lists the known names.
        PreconditionError: a package that it needs is not installed; the message has the command that installs it.

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
        where = f"[settings] of policy.toml, for the backend {config.backend}"
        raise PreconditionError(f"{where}: {error}{cure_of(error, kind)}") from error


def declared_signature(config: PolicyConfig) -> ModelSignature:
    """Return the signature that ``policy.toml`` declares; undeclared parts are ``None``."""
    features = None if config.features is None else Layout.from_json(config.features)
    return ModelSignature(features, None if config.advice is None else TensorSpec.from_json(config.advice))


def batch_cure(spec: TensorSpec) -> str:
    """Return the end of an error's message for a tensor whose open first dimension may be the batch's; else ``""``."""
    if spec.shape[:1] != (VARIES,):
        return ""
    said = "set `batch = true` under [settings] in policy.toml"
    return f". If the first dimension of {spec.name} counts observations, {said}"

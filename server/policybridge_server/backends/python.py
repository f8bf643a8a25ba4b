"""Backend `python`: a class with ``evaluate``, and ``start`` and ``end`` where it cares for sessions.

    class Policy:
        def evaluate(self, observation, session):
            return observation["inlining_default"]

One object per version; observations come one at a time, in a worker thread unless ``inline = true``.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_serdes import Values
from policybridge_serdes.errors import PolicyFailedError, PreconditionError
from policybridge_serdes.values import pack
from policybridge_server.backends.contract import (
    Batch,
    ModelSignature,
    SessionView,
    convert_settings,
    declared_signature,
)
from policybridge_server.repository import PolicyConfig


class PythonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[settings]``: the file in the version's folder, and the class in it."""

    file: str = "policy.py"
    name: str = "Policy"


class PythonBackend:
    """Imports the file as a module of its own and makes one object of the class."""

    runs_code: ClassVar[bool] = True

    def load(self, artifact: Path, config: PolicyConfig) -> "PythonModel":
        """Import the policy's file and call its class without arguments."""
        settings = convert_settings(config, PythonSettings)
        file = artifact / settings.file
        module = _import(file)
        if not hasattr(module, settings.name):
            raise PreconditionError(f"{file} has no class {settings.name!r}")
        try:
            policy = getattr(module, settings.name)()
        except Exception as error:
            raise PreconditionError(f"{file}: {settings.name}() raised {error!r}") from error
        if not callable(getattr(policy, "evaluate", None)):
            raise PreconditionError(f"{file}: {settings.name} has no method evaluate(observation, session)")
        return PythonModel(policy, declared_signature(config))


def _import(file: Path) -> object:
    name = f"policybridge_policy_{abs(hash(file))}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise PreconditionError(f"there is no Python file {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise PreconditionError(f"{file} cannot be imported: {error!r}") from error
    return module


class Observation(Mapping[str, npt.NDArray[Any]]):
    """One observation's tensors by name, each made when it is asked for."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._names = values.dtype.names or ()

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._names:
            raise KeyError(f"no feature {name!r}; the client sends {', '.join(self)}")
        value: npt.NDArray[Any] = self._values[name][0]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class PythonModel:
    """A policy object behind the model contract."""

    batched = False
    inline: bool | None = False

    def __init__(self, policy: Any, signature: ModelSignature) -> None:
        self.signature = signature
        self._evaluate: Callable[[Mapping[str, npt.NDArray[Any]], SessionView], Any] = policy.evaluate
        self._start: Callable[[SessionView], None] | None = getattr(policy, "start", None)
        self._end: Callable[[SessionView], None] | None = getattr(policy, "end", None)
        self._started: set[str] = set()

    def evaluate(self, batch: Batch) -> Values:
        """Ask the policy for the one observation of ``batch``; its session is started before its first."""
        (session,) = batch.sessions
        if session.id not in self._started:
            self._started.add(session.id)
            if self._start is not None:
                self._start(session)
        answer = self._evaluate(Observation(batch.values), session)
        (spec,) = batch.advice.specs
        if answer is None:
            raise PolicyFailedError(f"evaluate returned None; it must return {spec}")
        return pack(batch.advice, {spec.name: _one_element(answer) if spec.fixed and spec.count == 1 else answer})

    def end(self, session: SessionView) -> None:
        """Tell the policy that ``session`` is over, if it was told of its start."""
        if session.id in self._started:
            self._started.discard(session.id)
            if self._end is not None:
                self._end(session)

    def close(self) -> None:
        """Nothing is held beside the object itself."""


def _one_element(answer: npt.ArrayLike) -> npt.ArrayLike:
    # In any number of dimensions it means the same: policies pass features of shape [1] on.
    array = np.asarray(answer)
    return array.reshape(()) if array.size == 1 else array

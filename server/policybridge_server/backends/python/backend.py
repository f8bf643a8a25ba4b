"""Backend `python`: a class with ``evaluate``; ``start`` and ``end`` are optional.

    class Policy:
        def evaluate(self, observation, session):
            return observation["inlining_default"]

There is one object per version. It gets one observation at a time, in a worker thread unless policy.toml says
``inline = true``. A policy keeps the data of a session in ``session.state``. If a policy consults models, policy.toml
names them under ``[settings.models]`` (see `policybridge_server.backends.python.models`), and the class is called with
them: ``Policy(models)``.

If ``decides`` of policy.toml names kinds of decisions, a method with a kind's name answers it, and ``evaluate`` the
others.

A session is one episode unless ``[settings.episode]`` defines the start of others. Each episode starts with an empty
``session.state``, and ``start`` and ``end`` are called for each.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_core.authors import POLICY_MODULE, describe, interrupts
from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_serdes import Values
from policybridge_serdes.values import pack
from policybridge_server.backends.artifacts import artifact_file
from policybridge_server.backends.contract import (
    Batch,
    SessionView,
    convert_settings,
    declared_signature,
)
from policybridge_server.backends.python.models import ConsultedModel, ModelConfig, load_models
from policybridge_server.repository import PolicyConfig


class EpisodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[settings.episode]``: the start of an episode, besides the start of the session.

    Attributes:
        feature: an episode starts with each observation in which this feature of the client is not 0.
        context: an episode starts with the first observation of each function or module. Two of the same name in a row
            are one episode, because the context does not change between them; use ``feature`` there.

    """

    feature: str | None = None
    context: bool = False


class PythonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[settings]``.

    Attributes:
        file: the name of the Python file in the version's folder.
        name: the name of the class in the file.
        models: name in the policy → file of the model, or how the file is loaded.
        episode: the start of an episode.

    """

    file: str = "policy.py"
    name: str = "Policy"
    models: dict[str, str | ModelConfig] = {}
    episode: EpisodeConfig = EpisodeConfig()


class PythonBackend:
    """Imports the file as a module and makes one object of the class."""

    runs_code: ClassVar[bool] = True

    def load(self, artifact: Path, config: PolicyConfig) -> "PythonModel":
        """Import the policy's file and call its class with the models, or without arguments if there are none."""
        settings: PythonSettings = convert_settings(config, PythonSettings)
        file = artifact_file(artifact, settings.file)
        models = load_models(artifact, settings.models)
        module = _import(file)
        policy = _make(file, module, settings.name, models)
        return PythonModel(_Code(policy, module, models), config, settings.episode)


class _SourceLoader(SourceFileLoader):
    """Reads source, never bytecode: ``__pycache__`` is not part of the version, and may hold another version's code."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _import(file: Path) -> ModuleType:
    name, folder = f"{POLICY_MODULE}{abs(hash(file))}", str(file.parent)
    _forget_beside(name)
    # A package, so that `from .helper import …` finds a module of this version, and never one of another version.
    sys.path_importer_cache[folder] = FileFinder(folder, (_SourceLoader, SOURCE_SUFFIXES))
    spec = importlib.util.spec_from_file_location(
        name, file, loader=_SourceLoader(name, str(file)), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None or not file.is_file():
        raise PreconditionError(f"there is no Python file {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        _forget(module)
        if interrupts(error):
            raise
        raise PreconditionError(f"{file} cannot be imported: {describe(error)}{_beside(error, file)}") from error
    return module


def _beside(error: BaseException, file: Path) -> str:
    """Return the cure of ``import helper``, if ``helper.py`` is in the version's folder: it is no place of modules."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if not isinstance(name, str) or not name.isidentifier():
        return ""
    places = (file.parent / f"{name}.py", file.parent / name / "__init__.py")
    found = any(place.is_file() for place in places)
    return f"; it is beside {file.name}, from where it is imported by `from .{name} import …`" if found else ""


def _forget(module: ModuleType) -> None:
    """Forget the module and its submodules, unless the same file has been imported again."""
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]
        _forget_beside(module.__name__)
        for folder in module.__path__:
            sys.path_importer_cache.pop(folder, None)


def _forget_beside(name: str) -> None:
    for each in list(sys.modules):
        if each.startswith(f"{name}."):
            del sys.modules[each]


def _make(file: Path, module: ModuleType, name: str, models: Mapping[str, ConsultedModel]) -> Any:
    if not hasattr(module, name):
        raise PreconditionError(
            f"{file} has no class {name!r}; if it has another name, policy.toml says so: `name` under [settings]"
        )
    try:
        policy = getattr(module, name)(models) if models else getattr(module, name)()
    except BaseException as error:
        if interrupts(error):
            raise
        raise PreconditionError(f"{file}: {name}({'models' if models else ''}) raised {describe(error)}") from error
    if not callable(getattr(policy, "evaluate", None)):
        raise PreconditionError(f"{file}: {name} has no method evaluate(observation, session)")
    return policy


class _Code(NamedTuple):
    """The loaded parts: the policy's object, the module of its class, and its models."""

    policy: Any
    module: ModuleType
    models: Mapping[str, ConsultedModel]


class Observation(Mapping[str, npt.NDArray[Any]]):
    """One observation's tensors by name; each array is made when the policy reads it."""

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


_Evaluate = Callable[[Mapping[str, npt.NDArray[Any]], SessionView], Any]


class PythonModel:
    """A policy object behind the model contract."""

    batched = False
    inline: bool | None = False

    def __init__(self, code: _Code, config: PolicyConfig, episode: EpisodeConfig) -> None:
        self.signature = declared_signature(config)
        self._code = code
        self._config = episode
        self._evaluate: _Evaluate = code.policy.evaluate
        self._by_kind: dict[str, _Evaluate] = {
            kind: method for kind in config.decides if callable(method := getattr(code.policy, kind, None))
        }
        self._start: Callable[[SessionView], None] | None = getattr(code.policy, "start", None)
        self._end: Callable[[SessionView], None] | None = getattr(code.policy, "end", None)

    def evaluate(self, batch: Batch) -> Values:
        """Ask the policy about the one observation of ``batch``; an episode is started before its first observation."""
        (session,) = batch.sessions
        observation = Observation(batch.values)
        self._follow(session, observation)
        (spec,) = batch.advice.specs
        answer = self._by_kind.get(spec.name, self._evaluate)(observation, session)
        if answer is None:
            raise PolicyFailedError(f"evaluate returned None; it must return {spec}")
        return pack(batch.advice, {spec.name: _one_element(answer) if spec.fixed and spec.count == 1 else answer})

    def _follow(self, session: SessionView, observation: Observation) -> None:
        if session.episode is not None:
            if not self._starts_anew(session, session.episode, observation):
                return
            self.end(session)
            session.state.clear()
        session.episode = session.context
        if self._start is not None:
            self._start(session)

    def _starts_anew(self, session: SessionView, context: str, observation: Observation) -> bool:
        if self._config.context and session.context != context:
            return True
        return self._config.feature is not None and bool(np.any(observation[self._config.feature]))

    def end(self, session: SessionView) -> None:
        """Call the policy's ``end`` for the episode of ``session``, if there is one."""
        begun, session.episode = session.episode is not None, None
        if begun and self._end is not None:
            self._end(session)

    def close(self) -> None:
        """Forget the module, unless the same file has been loaded again, and close the models."""
        _forget(self._code.module)
        for model in self._code.models.values():
            model.close()


def _one_element(answer: npt.ArrayLike) -> npt.ArrayLike:
    # One element means the same in any number of dimensions: policies return features of shape [1].
    array = np.asarray(answer)
    return array.reshape(()) if array.size == 1 else array

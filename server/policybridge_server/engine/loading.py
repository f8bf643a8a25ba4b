"""Loading a version: its backend loads it, the probe warms it up, and it gets its place."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from policybridge_core.authors import describe, interrupts
from policybridge_core.errors import NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_server.backends.contract import Model, load_backend
from policybridge_server.backends.process.model import ProcessModel
from policybridge_server.counters import Counters, VersionCounters
from policybridge_server.engine.failures import Failures
from policybridge_server.engine.head import Head
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.loaded_model import LoadedModel
from policybridge_server.engine.model_host import ModelHost, Rules
from policybridge_server.engine.pace import INLINE_SECONDS
from policybridge_server.engine.probe import Probe, confirm_probe, probe
from policybridge_server.engine.timeouts import Timeouts
from policybridge_server.engine.worker import stack_of
from policybridge_server.repository import StoredVersion, is_bundled

_LOG = logging.getLogger(__name__)


class Allowances(NamedTuple):
    """A server's limits for its versions.

    Attributes:
        allow_python: whether artifacts that are Python code may run. Those in the package itself may always.
        timeouts: how long they may take.
        loop: of the loop thread; ``None`` without one, and then every model runs in its caller's thread.
        counters: of the server.

    """

    allow_python: bool
    timeouts: Timeouts = Timeouts()
    loop: asyncio.AbstractEventLoop | None = None
    counters: Counters | None = None


def load_version(
    stored: StoredVersion, given: Allowances, folder: Path | None = None, probed: Sequence[Probe] = ()
) -> LoadedVersion:
    """Load, probe and warm up a version; blocks while it does.

    Args:
        stored: the version to load.
        given: the server's limits.
        folder: the folder of the files, if not yet in their place.
        probed: the probes of its models, if known of the same architectures with other weights; kernels do not depend
            on weights.

    Raises:
        PreconditionError: it cannot be loaded.

    """
    if given.loop is None:
        return _load(stored, given, folder, probed)
    return _Loading(str(stored), lambda: _load(stored, given, folder, probed)).result(given.timeouts.load)


def rehearses(stored: StoredVersion) -> bool:
    """Whether a version can be rehearsed: not one that is its author's code, nor one that has a process anyway."""
    try:
        return stored.config.isolation != "process" and not load_backend(stored.config.backend).runs_code
    except (NotFoundError, PreconditionError):
        # Loading it says why.
        return False


class _Loading:
    """Loads in a thread of its own, because the policy's code may never return."""

    def __init__(self, name: str, load: Callable[[], LoadedVersion]) -> None:
        self._name = name
        self._load = load
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._late = False
        self._loaded: LoadedVersion | None = None
        self._error: PolicyBridgeError = PreconditionError(f"{name} cannot be loaded")
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loaded = self._load()
        except PolicyBridgeError as error:
            self._error = error
        except BaseException as error:
            self._error = PreconditionError(f"{self._name} cannot be loaded: {describe(error)}")
            self._error.__cause__ = error
        with self._lock:
            self._ended.set()
            unwanted = self._loaded if self._late else None
        if unwanted is not None:
            unwanted.close()

    def result(self, seconds: float) -> LoadedVersion:
        """Give the version, if it is loaded within ``seconds``.

        Raises:
            PolicyBridgeError: it is not.

        """
        self._ended.wait(seconds)
        with self._lock:
            if not self._ended.is_set():
                self._late = True
                _LOG.error("%s is not loaded after %g s. It hangs at:\n%s", self._name, seconds, stack_of(self._thread))
                raise PreconditionError(f"{self._name} was not loaded within {seconds:g} s")
        if self._loaded is None:
            raise self._error
        return self._loaded


def _load(stored: StoredVersion, given: Allowances, folder: Path | None, probed: Sequence[Probe]) -> LoadedVersion:
    counters = (given.counters or Counters()).version(stored.policy.name, stored.policy.version)
    models: dict[str, LoadedModel] = {}
    with ExitStack() as undo:
        for (kind, each), expected in zip(stored.by_kind.items(), probed or repeat(None)):  # noqa: B905 - endless
            models[kind] = _load_model(each, given, folder, expected, counters)
            undo.callback(models[kind].close)
        undo.pop_all()
    return LoadedVersion(stored, models, counters)


def _load_model(
    stored: StoredVersion, given: Allowances, folder: Path | None, probed: Probe | None, counters: VersionCounters
) -> LoadedModel:
    try:
        with ExitStack() as undo:
            model = _model(stored, given, folder)
            undo.callback(model.close)
            head = None if stored.config.head is None else Head(stored.config.head, model.signature.advice)
            given_values, runs_code = stored.config.probe, load_backend(stored.config.backend).runs_code
            if probed is None:
                measured = probe(model, given_values, must_answer=not runs_code)
            else:
                measured = confirm_probe(model, probed, given_values)
            undo.pop_all()
    except PolicyBridgeError as error:
        raise PreconditionError(f"{stored} cannot be loaded: {error}") from error
    except BaseException as error:
        # The code of a policy, or of a package that a backend imports for it.
        if interrupts(error):
            raise
        raise PreconditionError(f"{stored} cannot be loaded: {describe(error)}") from error
    if not (runs_code or measured.repeats):
        _LOG.warning(
            "%s gives other advice when it is asked the same again, so replays and retries differ: its model draws "
            "random numbers. Export its scores, and let sessions explore by [head]",
            stored,
        )
    place = ModelHost(model, _rules(stored, given, model, measured), given.loop, Failures(str(stored)), counters)
    return LoadedModel(stored, model, head, measured, place)


def _model(stored: StoredVersion, given: Allowances, folder: Path | None = None) -> Model:
    config = stored.config
    try:
        backend = load_backend(config.backend)
    except NotFoundError as error:
        raise PreconditionError(f"policy.toml: {error}") from error
    if backend.runs_code and not (given.allow_python or is_bundled(folder or stored.folder)):
        raise PreconditionError(
            "it is Python code, which this server does not run; the operator allows it with --allow-python"
        )
    if config.isolation == "process":
        return ProcessModel(stored, folder or stored.folder, _allowed(stored, given), given.timeouts.load)
    return backend.load(folder or stored.folder, config)


def _allowed(stored: StoredVersion, given: Allowances) -> float:
    return stored.config.decision_timeout or given.timeouts.decision


def _rules(stored: StoredVersion, given: Allowances, model: Model, measured: Probe) -> Rules:
    # A process is ended by its `ProcessModel` when it takes too long.
    allowed = None if isinstance(model, ProcessModel) else _allowed(stored, given)
    movable = stored.config.inline is None and model.inline is None
    return Rules(
        str(stored),
        _inline(stored, model, measured),
        allowed,
        given.timeouts.load,
        movable,
        lambda: _model(stored, given),
    )


def _inline(stored: StoredVersion, model: Model, measured: Probe) -> bool:
    if isinstance(model, ProcessModel):
        return False
    if stored.config.inline is not None:
        return stored.config.inline
    if model.inline is not None:
        return model.inline
    # A model of unknown pace begins in a worker, and moves to the loop thread when it is fast.
    return measured.seconds is not None and measured.seconds < INLINE_SECONDS

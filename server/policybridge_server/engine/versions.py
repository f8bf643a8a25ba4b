"""The loaded versions: those with an alias, and those with a session."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from time import monotonic

from policybridge_core.authors import POLICY_MODULE, frames, traceback_of
from policybridge_core.errors import NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyReference, PolicyVersion
from policybridge_server.backends.contract import BACKENDS
from policybridge_server.counters import Counters
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.loading import Allowances, load_version, rehearses
from policybridge_server.engine.probe import Probe
from policybridge_server.engine.rehearsal import Rehearsal
from policybridge_server.repository import Repository, StoredVersion
from policybridge_server.repository.reading import check_unchanged

_LOG = logging.getLogger(__name__)


class LoadedVersions:
    """Loads and unloads versions. For the loop thread; ``load`` and ``prepare`` block and are for any one thread.

    Args:
        repository: the source of policies.
        given: the server's limits for its versions.

    """

    def __init__(self, repository: Repository, given: Allowances) -> None:
        self._repository = repository
        self._given = given
        self.counters = given.counters or Counters()
        self._rehearsal = Rehearsal()
        self._told: set[PolicyVersion] = set()
        self._came: Callable[[], object] = lambda: None
        self._unloaded: Callable[[StoredVersion], None] | None = None
        self._loaded: dict[PolicyVersion, LoadedVersion] = {}

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let slow models run in worker threads beside the thread of ``loop``."""
        self._given = self._given._replace(loop=loop)

    def on_load(self, came: Callable[[], object]) -> None:
        """Call ``came`` in any thread after each version that has been loaded, from now on."""
        self._came = came

    def on_unload(self, unloaded: Callable[[StoredVersion], None]) -> None:
        """Call ``unloaded`` with each version that has been unloaded, from now on."""
        self._unloaded = unloaded

    def get(self, version: PolicyVersion) -> LoadedVersion | None:
        """Give the version, if it is loaded."""
        return self._loaded.get(version)

    def load(self, reference: PolicyReference) -> LoadedVersion:
        """Give the version that ``reference`` means now; load it first if it is not loaded.

        Raises:
            NotFoundError: no such policy, version or alias.
            PreconditionError: it cannot be loaded, or its files have changed since they were read.

        """
        stored = self._repository.resolve(reference)
        if stored.policy not in self._loaded:
            check_unchanged(stored)
            loaded = self.prepare(stored)
            if self._loaded.setdefault(stored.policy, loaded) is loaded:
                self.counters.came(loaded.counters)
                self._came()
        return self._loaded[stored.policy]

    def preload(self) -> None:
        """Load the version that new sessions of each policy get.

        A version that cannot be loaded is refused, so that the version before it becomes the newest. A policy without
        a loadable version is skipped; its clients get the reason.
        """
        for name in self._repository.policies():
            self.check_backend(name)
            while not self._load_newest(name):
                continue

    def check_backend(self, name: str) -> None:
        """Let the error take the place of the policy's config, if no backend has the name that its config gives."""
        policy = self._repository.policy(name)
        if isinstance(policy.config, PreconditionError):
            return
        try:
            BACKENDS.check(policy.config.backend)
        except NotFoundError as error:
            broken = PreconditionError(f"policy.toml of {name!r}: {error}")
            self._repository.put(replace(policy, config=broken))

    def _load_newest(self, name: str) -> bool:
        """Load a policy's newest version, or refuse it; return whether there is no version left to try."""
        try:
            loaded = self.load(PolicyReference(name))
        except PolicyBridgeError as error:
            _LOG.warning("policy %s is not served: %s", name, error)
            latest = self._repository.policy(name).latest
            if latest is None or not isinstance(error, PreconditionError):
                return True
            self._repository.refuse(name, latest, error)
            return self._repository.policy(name).latest is None
        _LOG.info("loaded %s: %s", loaded.stored, loaded.probes)
        return True

    def prepare(
        self,
        stored: StoredVersion,
        folder: Path | None = None,
        probed: Sequence[Probe] = (),
        *,
        rehearse: bool = False,
    ) -> LoadedVersion:
        """Load a version without letting sessions get it; see ``load_version``.

        Args:
            stored: the version.
            folder: holds its files, if they are not in their place yet.
            probed: see ``load_version``.
            rehearse: probe it first in a process that is ended; for a version that was never accepted here.

        Raises:
            PreconditionError: it cannot be loaded.

        """
        counters, begun = self.counters, monotonic()
        try:
            if rehearse and rehearses(stored):
                probed = self._rehearsed(stored, folder or stored.folder, probed)
            loaded = load_version(stored, self._given, folder, probed)
        except PreconditionError as error:
            counters.load_failures += 1
            if stored.policy not in self._told and _is_of_author(error):
                self._told.add(stored.policy)
                _LOG.warning("%s cannot be loaded\n%s", stored, traceback_of(error))
            raise
        counters.loads += 1
        counters.load_seconds += monotonic() - begun
        return loaded

    def _rehearsed(self, stored: StoredVersion, folder: Path, expected: Sequence[Probe]) -> Sequence[Probe]:
        seconds = self._given.timeouts.load
        models = zip(stored.by_kind.values(), expected or repeat(None))  # noqa: B905 - endless
        return [self._rehearsal.probe(model, folder, each, seconds) for model, each in models]

    def admit(self, loaded: LoadedVersion) -> None:
        """Let sessions get a version that was prepared."""
        self._loaded[loaded.stored.policy] = loaded
        self.counters.came(loaded.counters)
        self._came()

    @property
    def loaded(self) -> list[LoadedVersion]:
        """All versions that are loaded."""
        return list(self._loaded.values())

    def unload_unused(self) -> None:
        """Unload the versions that no alias names and no session is on."""
        for loaded in list(self._loaded.values()):
            self.release(loaded)

    def release(self, loaded: LoadedVersion) -> None:
        """Unload a version unless an alias names it or a session is on it."""
        if self._needed(loaded):
            return
        loop = self._given.loop
        if loop is None:
            self._drop(loaded)
        else:
            # After this turn: it may hold observations of the session that has just ended.
            loop.call_soon_threadsafe(self._drop, loaded)

    def _needed(self, loaded: LoadedVersion) -> bool:
        return bool(loaded.sessions) or self._repository.is_named(loaded.stored)

    def _drop(self, loaded: LoadedVersion) -> None:
        if not self._needed(loaded) and self._loaded.get(loaded.stored.policy) is loaded:
            del self._loaded[loaded.stored.policy]
            self.counters.left(loaded.counters)
            loaded.close()
            if self._unloaded is not None:
                self._unloaded(loaded.stored)

    def close(self) -> None:
        """Free all models."""
        self._rehearsal.close()
        for loaded in self._loaded.values():
            loaded.close()
        self._loaded.clear()


def _is_of_author(error: BaseException) -> bool:
    """Whether code of a policy raised it, so that its author needs the traceback."""
    cause: BaseException | None = error
    while cause is not None:
        if any(module.startswith(POLICY_MODULE) for _, _, module in frames(cause.__traceback__)):
            return True
        cause = cause.__cause__
    return False

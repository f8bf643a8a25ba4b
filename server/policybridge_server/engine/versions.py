"""The versions that are loaded: those that an alias names, and those that a session is on."""

import logging
from collections.abc import Callable
from pathlib import Path

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyReference, PolicyVersion
from policybridge_server.engine.loaded import LoadedVersion, load_version
from policybridge_server.engine.probe import Probe
from policybridge_server.repository import Repository, StoredVersion

_LOG = logging.getLogger(__name__)


class LoadedVersions:
    """Loads and unloads versions. For the loop thread; ``load`` and ``prepare`` block and are for any one thread.

    Args:
        repository: where policies are found.
        allow_python: whether artifacts that are code may run.

    """

    def __init__(self, repository: Repository, *, allow_python: bool) -> None:
        self._repository = repository
        self._allow_python = allow_python
        self._post: Callable[..., object] | None = None
        self._unloaded: Callable[[StoredVersion], None] | None = None
        self._loaded: dict[PolicyVersion, LoadedVersion] = {}

    def attach(self, post: Callable[..., object]) -> None:
        """Let slow models run in worker threads; ``post`` makes a call on the loop thread."""
        self._post = post

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
            PreconditionError: it cannot be loaded.

        """
        stored = self._repository.resolve(reference)
        if stored.policy not in self._loaded:
            self._loaded.setdefault(stored.policy, self.prepare(stored))
        return self._loaded[stored.policy]

    def preload(self) -> None:
        """Load the version that new sessions of each policy get.

        A version that cannot be loaded is refused, so that the version before it becomes the newest. A policy of which
        no version can be loaded is skipped; a client that asks for it gets the reason.
        """
        for name in self._repository.policies():
            while not self._load_newest(name):
                continue

    def _load_newest(self, name: str) -> bool:
        """Load a policy's newest version, or refuse it; say whether there is nothing more to try."""
        try:
            loaded = self.load(PolicyReference(name))
        except PolicyBridgeError as error:
            _LOG.warning("policy %s is not served: %s", name, error)
            latest = self._repository.policy(name).latest
            if latest is None or not isinstance(error, PreconditionError):
                return True
            self._repository.refuse(name, latest, error)
            return self._repository.policy(name).latest is None
        _LOG.info("loaded %s: %s", loaded.stored, loaded.probe)
        return True

    def prepare(self, stored: StoredVersion, folder: Path | None = None, probed: Probe | None = None) -> LoadedVersion:
        """Load a version without letting sessions get it; see ``load_version``.

        Raises:
            PreconditionError: it cannot be loaded.
            NotFoundError: its backend is unknown.

        """
        return load_version(stored, allow_python=self._allow_python, post=self._post, folder=folder, probed=probed)

    def admit(self, loaded: LoadedVersion) -> None:
        """Let sessions get a version that was prepared."""
        self._loaded[loaded.stored.policy] = loaded

    def unload_unused(self) -> None:
        """Unload the versions that no alias names and no session is on."""
        for loaded in list(self._loaded.values()):
            self.release(loaded)

    def release(self, loaded: LoadedVersion) -> None:
        """Unload a version unless an alias names it or a session is on it."""
        if self._needed(loaded):
            return
        if self._post is None:
            self._drop(loaded)
        else:
            # After this turn: it may hold observations of the session that has just ended.
            self._post(self._drop, loaded)

    def _needed(self, loaded: LoadedVersion) -> bool:
        return bool(loaded.sessions) or self._repository.is_named(loaded.stored)

    def _drop(self, loaded: LoadedVersion) -> None:
        if not self._needed(loaded) and self._loaded.get(loaded.stored.policy) is loaded:
            del self._loaded[loaded.stored.policy]
            loaded.close()
            if self._unloaded is not None:
                self._unloaded(loaded.stored)

    def close(self) -> None:
        """Free all models."""
        for loaded in self._loaded.values():
            loaded.close()
        self._loaded.clear()

"""The versions that are loaded: each as long as new sessions may get it, or old ones are on it."""

from collections.abc import Callable
from pathlib import Path

from policybridge_serdes import PolicyReference, PolicyVersion
from policybridge_server.engine.loaded import LoadedVersion, load_version
from policybridge_server.engine.probe import Probe
from policybridge_server.repository import Repository, StoredVersion


class LoadedVersions:
    """Loads, keeps and unloads versions. For the loop thread, but for ``load`` and ``prepare``.

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
        """Say how a worker hands a call over to the loop thread."""
        self._post = post

    def on_unload(self, unloaded: Callable[[StoredVersion], None]) -> None:
        """Call ``unloaded`` with each version that has been unloaded, from now on."""
        self._unloaded = unloaded

    def get(self, version: PolicyVersion) -> LoadedVersion | None:
        """Give the version, if it is loaded."""
        return self._loaded.get(version)

    def load(self, reference: PolicyReference) -> LoadedVersion:
        """Load the version that ``reference`` means now, unless it is; blocks, and may run in any one thread.

        Raises:
            NotFoundError: no such policy, version or alias.
            PreconditionError: it cannot be loaded.

        """
        stored = self._repository.resolve(reference)
        if stored.policy not in self._loaded:
            self._loaded.setdefault(stored.policy, self.prepare(stored))
        return self._loaded[stored.policy]

    def prepare(self, stored: StoredVersion, folder: Path | None = None, probed: Probe | None = None) -> LoadedVersion:
        """Load a version that nobody gets yet; blocks, and may run in any one thread. See ``load_version``.

        Raises:
            PreconditionError: it cannot be loaded.
            NotFoundError: its backend is unknown.

        """
        return load_version(stored, allow_python=self._allow_python, post=self._post, folder=folder, probed=probed)

    def admit(self, loaded: LoadedVersion) -> None:
        """Let sessions get what was prepared."""
        self._loaded[loaded.stored.policy] = loaded

    def unload_unused(self) -> None:
        """Unload the versions that no alias names and no session is on."""
        for loaded in list(self._loaded.values()):
            self.release(loaded)

    def release(self, loaded: LoadedVersion) -> None:
        """Unload a version unless an alias names it or a session is on it; after what is still under way."""
        if self._needed(loaded):
            return
        if self._post is None:
            self._drop(loaded)
        else:
            # The turn may hold observations of the session that has just ended.
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

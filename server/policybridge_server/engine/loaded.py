"""A loaded version: its model, the thread it runs in, and one batcher for each client signature."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_serdes import Signature
from policybridge_server.backends.contract import Model, ModelSignature, SessionView, StatefulModel, load_backend
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.binding import bind
from policybridge_server.engine.evaluator import Evaluator
from policybridge_server.engine.head import Head
from policybridge_server.engine.probe import Probe, confirm_probe, probe
from policybridge_server.engine.worker import Worker
from policybridge_server.repository import StoredVersion

_LOG = logging.getLogger(__name__)

INLINE_SECONDS = 2e-3
"""A model that takes longer for one observation runs in a worker, because the loop thread serves all clients."""


_KEPT = 16
"""Batchers that are kept without a session."""


class LoadedVersion:
    """One version, ready to answer. Made by ``load_version``; used on the loop thread.

    Attributes:
        stored: the version on disk.
        head: what chooses among the model's scores, if policy.toml asks for it.
        probe: the limits of its batches.
        signature: the model's, with the head's advice where there is a head.
        sessions: number of sessions that are on it.

    """

    def __init__(
        self, stored: StoredVersion, model: Model, head: Head | None, found: Probe, worker: Worker | None
    ) -> None:
        self.stored = stored
        self.head = head
        self.probe = found
        self.signature = model.signature if head is None else ModelSignature(model.signature.features, head.advice)
        self._model = model
        self._worker = worker
        self.sessions = 0
        # Asked once: isinstance() with a protocol takes as long as evaluating a small model.
        self._stateful = model if isinstance(model, StatefulModel) else None
        self._batchers: WeakValueDictionary[Signature, Batcher] = WeakValueDictionary()
        self._kept: dict[Signature, Batcher] = {}

    def batcher(self, signature: Signature, schedule: Callable[[Batcher], None]) -> Batcher:
        """Give the batcher of all clients with this signature; it lives as long as one of their sessions.

        Raises:
            InvalidError: the signature does not fit the model's.

        """
        batcher = self._batchers.get(signature)
        if batcher is None:
            binding = bind(signature, self.signature, self.stored)
            evaluator = Evaluator(self._model, self.head, binding, signature, self.probe)
            batcher = Batcher(evaluator, self._worker, schedule, binding.ignored)
            self._batchers[signature] = batcher
        return batcher

    def keep(self, signature: Signature, schedule: Callable[[Batcher], None]) -> None:
        """Keep the batcher of clients that come without a session, so that each of them need not be bound anew.

        Raises:
            InvalidError: the signature does not fit the model's.

        """
        if signature not in self._kept:
            if len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[signature] = self.batcher(signature, schedule)

    def clients(self) -> list[Signature]:
        """Give the signatures of the clients that are bound now; one that is only kept is none."""
        batchers = self._batchers.items()
        return [signature for signature, batcher in batchers if batcher.sessions or signature not in self._kept]

    def begin(self) -> None:
        """Count one more session."""
        self.sessions += 1

    def end(self, session: SessionView) -> None:
        """Count one session less; a stateful model ends it after the decisions that it still has to make."""
        self.sessions -= 1
        model = self._stateful
        if model is not None:
            self._run(lambda: _end(model, session))

    def close(self) -> None:
        """Free the model, after the decisions that it still has to make."""
        self._run(self._model.close)
        if self._worker is not None:
            self._worker.stop()

    def _run(self, job: Callable[[], Any]) -> None:
        if self._worker is None:
            job()
        else:
            self._worker.put(job)


def _end(model: StatefulModel, session: SessionView) -> None:
    try:
        model.end(session)
    except Exception:
        # No client waits for this any more, so the log is the only place for the error.
        _LOG.exception("policy %s: end() raised", session.policy.name)


def load_version(
    stored: StoredVersion,
    *,
    allow_python: bool,
    post: Callable[..., object] | None,
    folder: Path | None = None,
    probed: Probe | None = None,
) -> LoadedVersion:
    """Load, probe and warm up a version; blocks while it does.

    Args:
        stored: what to load.
        allow_python: whether artifacts that are Python code may run.
        post: makes a call on the loop thread; ``None`` without a loop, then the model runs inline.
        folder: holds the files, if they are not in their place yet.
        probed: what is known of the same architecture with other weights; kernels do not depend on those.

    Raises:
        PreconditionError: it cannot be loaded.
        NotFoundError: its backend is unknown.

    """
    backend = load_backend(stored.config.backend)
    if backend.runs_code and not allow_python:
        raise PreconditionError(
            f"{stored} is Python code, which this server does not run; the operator allows it with --allow-python"
        )
    try:
        model = backend.load(folder or stored.folder, stored.config)
        head = None if stored.config.head is None else Head(stored.config.head, model.signature.advice)
    except PolicyBridgeError as error:
        raise PreconditionError(f"{stored} cannot be loaded: {error}") from error
    found = probe(model) if probed is None else confirm_probe(model, probed)
    inline = post is None or _inline(stored, model, found)
    worker = None if inline or post is None else Worker(str(stored), post)
    return LoadedVersion(stored, model, head, found, worker)


def _inline(stored: StoredVersion, model: Model, found: Probe) -> bool:
    if stored.config.inline is not None:
        return stored.config.inline
    return found.seconds < INLINE_SECONDS if model.inline is None else model.inline

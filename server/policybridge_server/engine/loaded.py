"""A loaded version: its model, the thread it runs in, and one batcher for each client signature."""

from collections.abc import Callable
from weakref import WeakValueDictionary

from policybridge_core.errors import PolicyFailedError
from policybridge_serdes import Signature
from policybridge_server.backends.contract import Model, ModelSignature, SessionView, StatefulModel
from policybridge_server.backends.process.model import ProcessModel
from policybridge_server.bounded import BoundedCache
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.binding import bind
from policybridge_server.engine.evaluator import Evaluator
from policybridge_server.engine.head import Head
from policybridge_server.engine.model_host import ModelHost
from policybridge_server.engine.probe import Probe
from policybridge_server.repository import StoredVersion

_MOST_KEPT = 16
"""Batchers that are kept without a session."""


class LoadedVersion:
    """One version, ready to answer. Made by ``load_version``; used on the loop thread.

    Attributes:
        stored: the version on disk.
        head: the head that chooses among the model's scores, if policy.toml has one.
        probe: the limits of its batches.
        signature: the model's, with the head's advice if there is a head.
        sessions: number of its open sessions.
        counters: the version's counters.

    """

    def __init__(self, stored: StoredVersion, model: Model, head: Head | None, probe: Probe, place: ModelHost) -> None:
        self.stored = stored
        self.counters = place.counters
        self.head = head
        self.probe = probe
        self.signature = model.signature if head is None else ModelSignature(model.signature.features, head.advice)
        self.sessions = 0
        self._place = place
        self._process = model if isinstance(model, ProcessModel) else None
        # Asked once: isinstance() with a protocol takes as long as evaluating a small model.
        self._stateful = isinstance(model, StatefulModel)
        place.on_hang(self._give_up)
        self._batchers: WeakValueDictionary[Signature, Batcher] = WeakValueDictionary()
        self._kept: BoundedCache[Signature, Batcher] = BoundedCache(_MOST_KEPT)

    def batcher(self, signature: Signature, schedule: Callable[[Batcher], None]) -> Batcher:
        """Give the batcher of all clients with this signature; it lives as long as one of their sessions.

        Raises:
            InvalidError: the signature does not fit the model's.

        """
        batcher = self._batchers.get(signature)
        if batcher is None:
            binding = bind(signature, self.signature, self.stored)
            evaluator = Evaluator(self.head, binding, signature, self.probe, self._place.failures)
            batcher = Batcher(evaluator, self._place, schedule, binding.ignored, self.counters)
            self._batchers[signature] = batcher
        return batcher

    def keep(self, signature: Signature, schedule: Callable[[Batcher], None]) -> Batcher:
        """Return the batcher of clients without a session, and keep it to bind their signature only once.

        Raises:
            InvalidError: the signature does not fit the model's.

        """
        batcher = self._kept.get(signature)
        if batcher is None:
            batcher = self.batcher(signature, schedule)
            self._kept.put(signature, batcher)
        return batcher

    def clients(self) -> list[Signature]:
        """Return the signatures of the bound clients, without those that are only kept."""
        batchers = self._batchers.items()
        return [signature for signature, batcher in batchers if batcher.sessions or signature not in self._kept]

    def begin(self) -> None:
        """Count one more session."""
        self.sessions += 1

    def end(self, session: SessionView) -> None:
        """Count one session less; a stateful model ends it after the decisions that it still has to make."""
        self.sessions -= 1
        if self._stateful:
            self._place.end(session)

    def close(self) -> None:
        """Free the model, after the decisions that it still has to make."""
        self._place.close()

    @property
    def trouble(self) -> str:
        """Why the version does not answer at present; empty: it does."""
        return self._place.trouble or ("" if self._process is None else self._process.trouble)

    @property
    def failures(self) -> int:
        """How many evaluations have failed."""
        return self._place.failures.count

    def _give_up(self, error: PolicyFailedError) -> None:
        for batcher in list(self._batchers.values()):
            batcher.give_up(error)

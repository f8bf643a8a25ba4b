"""One model of a loaded version: its head, the thread it runs in, and one batcher for each client signature."""

from collections.abc import Callable
from weakref import WeakValueDictionary

from policybridge_core.errors import PolicyFailedError
from policybridge_serdes import Signature
from policybridge_server.backends.contract import Model, ModelSignature, SessionView, StatefulModel
from policybridge_server.backends.process.model import ProcessModel
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.binding import Binding, bind
from policybridge_server.engine.evaluator import Evaluator
from policybridge_server.engine.head import Head
from policybridge_server.engine.model_host import ModelHost
from policybridge_server.engine.probe import Probe
from policybridge_server.repository import StoredVersion


class LoadedModel:
    """A model of a version. Made by ``load_version``; used on the loop thread.

    Attributes:
        stored: the version on disk, with the config of this model.
        head: the head that chooses among the model's scores, if policy.toml has one.
        probe: the limits of its batches.
        signature: the model's, with the head's advice if there is a head.
        counters: of the version.

    """

    def __init__(self, stored: StoredVersion, model: Model, head: Head | None, probe: Probe, place: ModelHost) -> None:
        self.stored = stored
        self.head = head
        self.probe = probe
        self.signature = model.signature if head is None else ModelSignature(model.signature.features, head.advice)
        self.counters = place.counters
        self._place = place
        self._process = model if isinstance(model, ProcessModel) else None
        # Asked once: isinstance() with a protocol takes as long as evaluating a small model.
        self._stateful = isinstance(model, StatefulModel)
        place.on_hang(self._give_up)
        self._batchers: WeakValueDictionary[Signature, Batcher] = WeakValueDictionary()

    def bind(self, signature: Signature) -> Binding:
        """Bind a client's features to the model's inputs; see `bind`."""
        return bind(signature, self.signature, self.stored)

    def batcher(self, signature: Signature, schedule: Callable[[Batcher], None]) -> Batcher:
        """Give the batcher of all clients with this signature; see `LoadedVersion.batcher`."""
        batcher = self._batchers.get(signature)
        if batcher is None:
            binding = self.bind(signature)
            evaluator = Evaluator(self.head, binding, signature, self.probe, self._place.failures)
            batcher = Batcher(evaluator, self._place, schedule, binding.ignored, self._place.counters)
            self._batchers[signature] = batcher
        return batcher

    def batchers(self) -> list[tuple[Signature, Batcher]]:
        """Return the live batchers by their signatures."""
        return list(self._batchers.items())

    def end(self, session: SessionView) -> None:
        """End a session in a stateful model, after the decisions that it still has to make."""
        if self._stateful:
            self._place.end(session)

    def close(self) -> None:
        """Free the model, after the decisions that it still has to make."""
        for _, batcher in self.batchers():
            batcher.close()
        self._place.close()

    @property
    def trouble(self) -> str:
        """Why the model does not answer at present; empty: it does."""
        return self._place.trouble or ("" if self._process is None else self._process.trouble)

    @property
    def failures(self) -> int:
        """How many evaluations have failed."""
        return self._place.failures.count

    def _give_up(self, error: PolicyFailedError) -> None:
        for _, batcher in self.batchers():
            batcher.give_up(error)

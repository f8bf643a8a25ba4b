"""A loaded version: a model, or one for each kind of its decisions."""

import asyncio
from collections.abc import Callable, Mapping

from policybridge_core.errors import InvalidError
from policybridge_serdes import Signature
from policybridge_server.backends.contract import ModelSignature, SessionView
from policybridge_server.bounded import BoundedCache
from policybridge_server.counters import VersionCounters
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.forms import Forms
from policybridge_server.engine.loaded_model import LoadedModel
from policybridge_server.engine.probe import Probe
from policybridge_server.repository import StoredVersion

_MOST_KEPT = 16
"""Batchers that are kept without a session."""


class LoadedVersion:
    """One version, ready to answer. Made by ``load_version``; used on the loop thread.

    Attributes:
        stored: the version on disk.
        models: its models, by the kind of their decisions; an only model has the empty name.
        signature: the only model's; empty if there are several.
        sessions: number of its open sessions.
        counters: the version's counters.
        forms: the forms of its models; ``None``: they are not made.
        making: makes them; ``None``: nobody has begun.

    """

    def __init__(self, stored: StoredVersion, models: Mapping[str, LoadedModel], counters: VersionCounters) -> None:
        self.stored = stored
        self.counters = counters
        self.models = models
        self.signature = models[""].signature if "" in models else ModelSignature(None, None)
        self.sessions = 0
        self.forms: Forms | None = None
        self.making: asyncio.Task[None] | None = None
        self._kept: BoundedCache[Signature, Batcher] = BoundedCache(_MOST_KEPT)

    def model(self, signature: Signature) -> LoadedModel:
        """Give the model that decides for clients of this signature.

        Raises:
            InvalidError: there is none for the kind of their decisions.

        """
        model = self.models.get("") or self.models.get(signature.advice.name)
        if model is None:
            raise InvalidError(f"{self.stored} decides {', '.join(self.models)}, and not {signature.advice.name!r}")
        return model

    def batcher(self, signature: Signature, schedule: Callable[[Batcher], None]) -> Batcher:
        """Give the batcher of all clients with this signature; it lives as long as one of their sessions.

        Raises:
            InvalidError: the signature does not fit the model's.

        """
        return self.model(signature).batcher(signature, schedule)

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
        batchers = [each for model in self.models.values() for each in model.batchers()]
        return [
            signature
            for signature, batcher in batchers
            if batcher.sessions or not (batcher.left or signature in self._kept)
        ]

    @property
    def signatures(self) -> Mapping[str, ModelSignature]:
        """The signature of each model, by its kind."""
        return {kind: model.signature for kind, model in self.models.items()}

    @property
    def probes(self) -> list[Probe]:
        """The limits of the batches of each model."""
        return [model.probe for model in self.models.values()]

    def begin(self) -> None:
        """Count one more session."""
        self.sessions += 1

    def end(self, session: SessionView) -> None:
        """Count one session less; stateful models end it after the decisions that they still have to make."""
        self.sessions -= 1
        for model in self.models.values():
            model.end(session)

    def close(self) -> None:
        """Free the models, after the decisions that they still have to make."""
        for model in self.models.values():
            model.close()

    @property
    def trouble(self) -> str:
        """Why the version does not answer at present; empty: it does."""
        return next((model.trouble for model in self.models.values() if model.trouble), "")

    @property
    def failures(self) -> int:
        """How many evaluations have failed."""
        return sum(model.failures for model in self.models.values())

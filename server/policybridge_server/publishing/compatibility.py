"""Whether a new version may replace an old one: it must accept the signatures of the old one's clients."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_serdes import Layout, Signature
from policybridge_serdes.specs import TensorSpec
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.repository import PolicyConfig


def check_compatible(new: LoadedVersion, old: LoadedVersion, clients: Iterable[Signature]) -> None:
    """Bind to ``new`` the signatures of ``clients``, and the smallest one that ``old`` accepts.

    Raises:
        PreconditionError: one does not fit: ``new`` needs another input, type, shape or advice. Both specs are in the
            message.

    """
    if (new.signatures, new.stored.config) == (old.signatures, old.stored.config):
        # Binding depends only on these.
        return
    for client in [*_smallest_clients(new, old), *clients]:
        try:
            new.model(client).bind(client)
        except InvalidError as error:
            raise PreconditionError(f"clients of {old.stored} could not go on with {new.stored}: {error}") from error


def _smallest_clients(new: LoadedVersion, old: LoadedVersion) -> Iterator[Signature]:
    """Give, for each model of ``old`` that declares its features, the signature with only those that it needs."""
    for kind, model in old.models.items():
        features, advice = model.signature.features, model.signature.advice
        if advice is None and kind in new.models:
            advice = new.models[kind].signature.advice
        if features is not None and advice is not None:
            named = replace(advice, name=kind or advice.name)
            yield Signature(Layout.of(_needed(features, model.stored.config)), named)


def _needed(features: Layout, config: PolicyConfig) -> Iterable[TensorSpec]:
    needed: dict[str, TensorSpec] = {}
    for spec in features.specs:
        if spec.name not in config.fill:
            name = config.rename.get(spec.name, spec.name)
            needed[name] = TensorSpec(name, spec.type, spec.shape)
    return needed.values()

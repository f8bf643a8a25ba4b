"""Whether a new version may replace an old one: it must accept the signatures of the old one's clients."""

from collections.abc import Iterable

from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_serdes import Layout, Signature
from policybridge_serdes.specs import TensorSpec
from policybridge_server.engine.binding import bind
from policybridge_server.engine.loaded import LoadedVersion


def check_compatible(new: LoadedVersion, old: LoadedVersion, clients: Iterable[Signature]) -> None:
    """Bind to ``new`` the signatures of ``clients``, and the smallest one that ``old`` accepts.

    Raises:
        PreconditionError: one does not fit: ``new`` needs another input, type, shape or advice. Both specs are in the
            message.

    """
    if (new.signature, new.stored.config) == (old.signature, old.stored.config):
        # Binding depends only on these.
        return
    for client in [*_smallest_client(new, old), *clients]:
        try:
            bind(client, new.signature, new.stored)
        except InvalidError as error:
            raise PreconditionError(f"clients of {old.stored} could not go on with {new.stored}: {error}") from error


def _smallest_client(new: LoadedVersion, old: LoadedVersion) -> list[Signature]:
    """Return the signature with only the features that ``old`` needs; none if ``old`` does not declare them."""
    features, advice = old.signature.features, old.signature.advice or new.signature.advice
    if features is None or advice is None:
        return []
    config = old.stored.config
    needed: dict[str, TensorSpec] = {}
    for spec in features.specs:
        if spec.name not in config.fill:
            name = config.rename.get(spec.name, spec.name)
            needed[name] = TensorSpec(name, spec.type, spec.shape)
    return [Signature(Layout.of(needed.values()), advice)]

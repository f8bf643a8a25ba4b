"""Whether a new version may take an old one's place: it must take what clients of the old one send."""

from collections.abc import Iterable

from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_serdes import Layout, Signature
from policybridge_serdes.specs import TensorSpec
from policybridge_server.engine.binding import bind
from policybridge_server.engine.loaded import LoadedVersion


def check_compatible(new: LoadedVersion, old: LoadedVersion, clients: Iterable[Signature]) -> None:
    """Bind to ``new`` whoever could be bound to ``old``, and the ``clients`` that are.

    Raises:
        PreconditionError: an input too many, another type or shape, other advice; both specs are in the message.

    """
    if (new.signature, new.stored.config) == (old.signature, old.stored.config):
        # Binding looks at nothing else.
        return
    for client in [*_least_clients(new, old), *clients]:
        try:
            bind(client, new.signature, new.stored)
        except InvalidError as error:
            raise PreconditionError(f"clients of {old.stored} could not go on with {new.stored}: {error}") from error


def _least_clients(new: LoadedVersion, old: LoadedVersion) -> list[Signature]:
    """Give the client that sends no more than ``old`` needs, where ``old`` says what that is."""
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

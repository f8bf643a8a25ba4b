"""The spec of the reply that the compiler reads, and its fallback without advice."""

from collections.abc import Collection

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_serdes import TensorSpec
from policybridge_server.mlbridge.pipes.config import ANY, PipeConfig
from policybridge_server.mlbridge.pipes.formats import Format
from policybridge_server.mlbridge.pipes.replies import encode_reply


class ExpectedAdvice:
    """The spec that the compiler reads: always the same, or selected by a feature of the message.

    Args:
        config: of the pipe.
        form: writes the fallbacks; they are made once, here.

    Raises:
        InvalidError: a fallback does not fit its spec.

    """

    def __init__(self, config: PipeConfig, form: Format) -> None:
        self._specs = config.advice_specs
        self._form = form
        fallbacks = config.fallbacks
        self._fallbacks = {
            feature: encode_reply(spec, fallbacks[feature], form)
            for feature, spec in self._specs.items()
            if feature in fallbacks
        }

    @property
    def has_fallback(self) -> bool:
        """Whether there is any."""
        return bool(self._fallbacks)

    def spec(self, features: Collection[str]) -> TensorSpec:
        """Return the spec that the compiler reads after a message with these ``features``.

        Raises:
            InvalidError: they do not select exactly one.

        """
        return self._specs[self._told_by(features)]

    def fallback(self, message: bytes | None) -> bytes | None:
        """Give the framed reply to ``message``; ``None`` if none is safe, and the compiler must end.

        Args:
            message: the received bytes; ``None`` if it was too large to be kept.

        """
        if ANY in self._specs:
            return self._fallbacks.get(ANY)
        try:
            features = self._form.read(message or b"").layout.by_name
            return self._fallbacks.get(self._told_by(features))
        except PolicyBridgeError:
            return None

    def _told_by(self, features: Collection[str]) -> str:
        if ANY in self._specs:
            return ANY
        told = [name for name in self._specs if name in features]
        if len(told) != 1:
            raise InvalidError(
                f"a message has the features {', '.join(features) or 'none'}; it must have exactly one of "
                f"{', '.join(self._specs)}"
            )
        return told[0]

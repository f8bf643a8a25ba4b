"""What the compiler reads in reply to a message, and the fallback that it gets where there is no advice."""

from collections.abc import Collection

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_serdes import TensorSpec
from policybridge_server.mlbridge.pipes.config import ANY, PipeConfig
from policybridge_server.mlbridge.pipes.formats import Format
from policybridge_server.mlbridge.pipes.replies import encode_reply


class ExpectedAdvice:
    """What the compiler reads: always the same, or told by the feature that a message has.

    Args:
        config: of the pipe.
        form: writes the fallbacks; they are made once, here.

    Raises:
        InvalidError: a fallback is not what the compiler reads.

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
        """Give what the compiler reads after a message with these ``features``.

        Raises:
            InvalidError: they do not tell it.

        """
        return self._specs[self._told_by(features)]

    def fallback(self, message: bytes | None) -> bytes | None:
        """Give the framed reply to ``message``; ``None`` where none is safe, and the compiler is made to end.

        Args:
            message: as it came; ``None`` where it was too large to be kept.

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
                f"a message has the features {', '.join(features) or 'none'}; one of those that tell what the compiler "
                f"reads is right: {', '.join(self._specs)}"
            )
        return told[0]

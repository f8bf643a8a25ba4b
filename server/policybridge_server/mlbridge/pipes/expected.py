"""The spec of the reply that the compiler reads, and its fallback without advice."""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_serdes import TensorSpec, Values, tensor
from policybridge_serdes.values import fit
from policybridge_server.mlbridge.pipes.config import ANY, PipeConfig
from policybridge_server.mlbridge.pipes.formats import Format
from policybridge_server.mlbridge.pipes.frames import frame

ReplyWriter = Callable[[Values], bytes]
"""Makes the framed reply of one record of advice; raises InvalidError if the compiler could not read it."""


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


def reply_writer(read: TensorSpec, given: TensorSpec, form: Format) -> ReplyWriter:
    """Prepare the replies for a compiler that reads ``read``, of a policy that gives ``given``.

    Integers are converted if they are in range, and floats to the nearest.

    Raises:
        InvalidError: the policy's advice can never fit the spec that the compiler reads.

    """
    counts = given.fixed and not read.varies and given.count != read.count
    if counts or read.type.is_text != given.type.is_text or (_is_float(given) and not _is_float(read)):
        raise InvalidError(f"the policy gives {given}; the compiler reads {read}")

    if given.fixed and (given.count, given.type.dtype.kind, read.type.dtype.kind) == (1, "i", "i"):
        return _integer_writer(read, given, form)

    def write(advice: Values) -> bytes:
        return encode_reply(read, tensor(given, advice), form)

    return write


def _integer_writer(read: TensorSpec, given: TensorSpec, form: Format) -> ReplyWriter:
    # Fast path for most advice, a choice: the policy gives one int64_t, and the compiler reads one int.
    dtype, limits = read.type.dtype, np.iinfo(read.type.dtype)

    def write(advice: Values) -> bytes:
        number = int(advice[given.name].item())
        if not limits.min <= number <= limits.max:
            raise InvalidError(f"{read} was given {number}, which is out of its range")
        return frame(form.reply(read, np.array([number], dtype)))

    return write


def encode_reply(read: TensorSpec, advice: npt.ArrayLike, form: Format) -> bytes:
    """Make the framed reply of an advice.

    Raises:
        InvalidError: the compiler could not read it.

    """
    flat: npt.NDArray[Any] = np.asarray(advice, object if read.type.is_text else None).reshape(-1)
    return frame(form.reply(read, fit(read, flat)))


def _is_float(spec: TensorSpec) -> bool:
    return spec.type.dtype.kind == "f"

"""The events of LLVM's interactive stream."""

from dataclasses import dataclass
from typing import Final

from policybridge_core.session import Outcome
from policybridge_serdes.specs import Signature

CHANCE_BYTES: Final = 4
"""Of the logarithm of a probability: a little-endian float."""


@dataclass(frozen=True)
class Header:
    """A module's features and advice."""

    signature: Signature


@dataclass(frozen=True)
class Context:
    """The function that the next observations belong to; empty for a whole module."""

    name: str


@dataclass(frozen=True)
class Decided:
    """Decisions that the client made by the policy's form.

    Attributes:
        count: how many there are.
        nanoseconds: the time that they took together; 0 if the client does not say.
        payload: the packed observations, one after the other, then the packed advices, then the chances.
        chances: whether there are chances: a float for each decision, the logarithm of the advice's probability.

    """

    count: int
    nanoseconds: int
    payload: bytes
    chances: bool = False


@dataclass(frozen=True)
class FormWanted:
    """The client asks for the form of this digest."""

    digest: str


@dataclass(frozen=True)
class End:
    """The client ends the session, and wants to know that its record is kept."""


Event = bytes | Header | Context | Outcome | Decided | FormWanted | End
"""``bytes``: an observation's payload, in the bitstream's session form."""

"""The events of LLVM's interactive stream: structs of msgspec, which are made in a fifth of a dataclass's time."""

from typing import Final

import msgspec

from policybridge_core.session import Outcome
from policybridge_serdes.specs import Signature

CHANCE_BYTES: Final = 4
"""Of the logarithm of a probability: a little-endian float."""


class Header(msgspec.Struct, frozen=True):
    """A module's features and advice."""

    signature: Signature


class Context(msgspec.Struct, frozen=True):
    """The function that the next observations belong to; empty for a whole module."""

    name: str


class Decided(msgspec.Struct, frozen=True):
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


class FormWanted(msgspec.Struct, frozen=True):
    """The client asks for the form of this digest."""

    digest: str


class End(msgspec.Struct, frozen=True):
    """The client ends the session, and wants to know that its record is kept."""


Event = bytes | Header | Context | Outcome | Decided | FormWanted | End
"""``bytes``: an observation's payload, in the bitstream's session form."""

"""The values that describe a session, the same in every transport and on both sides."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from policybridge_core.errors import InvalidError
from policybridge_core.text import is_unicode


@dataclass(frozen=True)
class PolicyReference:
    """The policy that a client asks for, by version or by alias; without either, by the alias ``latest``.

    Raises:
        InvalidError: both a version and an alias are given.

    """

    name: str
    version: int | None = None
    alias: str | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.alias is not None:
            raise InvalidError(f"policy {self.name!r}: ask for version {self.version} or for {self.alias!r}, not both")

    def __str__(self) -> str:
        return f"{self.name}@{self.alias or 'latest' if self.version is None else self.version}"

    @classmethod
    def parse(cls, text: str) -> "PolicyReference":
        """Read ``NAME``, ``NAME@VERSION`` or ``NAME@ALIAS``."""
        name, _, which = text.partition("@")
        if which.isdecimal():
            return cls(name, version=int(which))
        return cls(name, alias=which or None)


@dataclass(frozen=True)
class PolicyVersion:
    """The exact version that answers; ``digest`` is ``sha256:`` and hexadecimal digits."""

    name: str
    version: int
    digest: str


@dataclass(frozen=True)
class Exploration:
    """How a session departs from the policy's best advice; reproducible by its seed.

    Attributes:
        seed: fixes every choice of the session, 0 to 2⁶⁴ − 1.
        temperature: above 0, advice is drawn from softmax(logits / temperature); with 0 it is the best advice.
        epsilon: the probability with which the advice is drawn from all legal ones, each as likely.

    Raises:
        InvalidError: a value is out of its range.

    """

    seed: int = 0
    temperature: float = 0.0
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise InvalidError(f"a seed is 0 to 2⁶⁴ − 1, not {self.seed}")
        if not 0 <= self.temperature < float("inf"):
            raise InvalidError(f"a temperature is 0 or more, not {self.temperature}")
        if not 0 <= self.epsilon <= 1:
            raise InvalidError(f"epsilon is a probability, not {self.epsilon}")


@dataclass(frozen=True)
class SessionOptions:
    """What a session is opened with beside its signature.

    Attributes:
        context: the module, or the first function, that is compiled.
        options: for the policy to read.
        labels: for people and trainers to find the session by.
        exploration: how to depart from the policy's best advice; ``None``: do not.

    """

    context: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    exploration: Exploration | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of a compilation.

    Attributes:
        values: numbers by name: ``text`` (bytes), ``cycles``, ``seconds``, …
        status: one word: ``ok``, ``crash``, ``timeout``, …; empty if unknown.

    Raises:
        InvalidError: a name is empty or no Unicode text, or a number is not finite.

    """

    values: Mapping[str, float] = field(default_factory=dict)
    status: str = ""

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            if not (name and is_unicode(name)):
                raise InvalidError(f"an outcome's name is Unicode text and not empty; it was {name!a}")
            if not isfinite(value):
                raise InvalidError(f"the outcome {name!r} is a finite number, not {value}")
        if not is_unicode(self.status):
            raise InvalidError(f"an outcome's status is Unicode text, not {self.status!a}")

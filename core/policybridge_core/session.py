"""The values that describe a session, the same in every transport and on both sides."""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Final

from policybridge_core.errors import InvalidError
from policybridge_core.text import is_unicode

_NUMBER: Final = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|-?(inf|nan)", re.ASCII)
LONGEST_NAME: Final = 256
"""Bytes of a name that a client sends: of a policy, an alias, a digest, a session's id."""

_SPELLING: Final = "temperature=T,epsilon=E,seed=S"


def check_length(name: str, what: str) -> None:
    """Check the length of a name before anything else reads it.

    Raises:
        InvalidError: it has more than `LONGEST_NAME` bytes; the message does not repeat it.

    """
    if len(name) * 4 > LONGEST_NAME and len(name.encode(errors="surrogatepass")) > LONGEST_NAME:
        raise InvalidError(f"{what} has at most {LONGEST_NAME} bytes, not {len(name)} characters")


@dataclass(frozen=True)
class PolicyReference:
    """A client's choice of a policy: by version, by alias, or else the alias ``latest``.

    A version's digest, ``sha256:`` and at least 12 hexadecimal digits, may stand for an alias: only the version with
    that digest answers, whatever its number.

    Attributes:
        name: the policy's.
        version: the version's number; ``None`` if it is chosen by alias.
        alias: an alias or a digest; ``None`` if it is chosen by number.

    Raises:
        InvalidError: both a version and an alias are given, or a name is longer than 256 bytes.

    """

    name: str
    version: int | None = None
    alias: str | None = None

    def __post_init__(self) -> None:
        check_length(self.name, "the name of a policy")
        if self.alias is not None:
            check_length(self.alias, "an alias")
        if self.version is not None and self.alias is not None:
            raise InvalidError(f"policy {self.name!r}: ask for version {self.version} or for {self.alias!r}, not both")

    def __str__(self) -> str:
        return f"{self.name}@{self.alias or 'latest' if self.version is None else self.version}"

    @classmethod
    def parse(cls, text: str) -> "PolicyReference":
        """Read ``NAME``, ``NAME@VERSION``, ``NAME@ALIAS`` or ``NAME@sha256:DIGEST``."""
        name, _, which = text.partition("@")
        if which.isdecimal():
            return cls(name, version=int(which))
        return cls(name, alias=which or None)


@dataclass(frozen=True)
class PolicyVersion:
    """The exact version that answers.

    Attributes:
        name: the policy's name.
        version: the version's number.
        digest: ``sha256:`` and hexadecimal digits, over its files and the parts of ``policy.toml`` that change advice.

    """

    name: str
    version: int
    digest: str


@dataclass(frozen=True)
class Exploration:
    """How a session departs from the policy's best advice; reproducible by its seed.

    Attributes:
        seed: fixes every choice of the session, 0 to 2⁶⁴ − 1.
        temperature: above 0, advice is drawn from softmax(logits / temperature); with 0 it is the best advice.
        epsilon: the probability of an advice that is drawn evenly from all legal ones.

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

    @classmethod
    def parse(cls, text: str) -> "Exploration":
        """Read ``temperature=T,epsilon=E,seed=S``, as ``--explore`` of every compiler client takes it.

        The parts come in any order, each at most once; a temperature or an epsilon is among them. Without a seed it
        is 0.

        Raises:
            InvalidError: the text is not of this form, or a value is out of its range.

        """
        given: dict[str, str] = {}
        for part in text.split(","):
            name, equals, value = part.partition("=")
            if not equals or name not in ("temperature", "epsilon", "seed") or name in given:
                twice = " twice" if name in given else ""
                raise InvalidError(f"an exploration is {_SPELLING}, each at most once, not {part!r}{twice}")
            given[name] = value
        if given.keys() <= {"seed"}:
            raise InvalidError(f"an exploration needs a temperature or an epsilon ({_SPELLING}): {text!r} has neither")
        return cls(_seed(given), _number(given, "temperature"), _number(given, "epsilon"))

    def of_module(self, module: str) -> "Exploration":
        """Give the exploration of one module of a build: the same values, and a seed of its own.

        That seed is the first 8 bytes, as a big-endian number, of the SHA-256 of the seed in decimal digits, a line
        feed and the name. So the modules of a build explore differently, and each the same in every build.

        Args:
            module: its source file, as the compiler's command names it.

        """
        mixed = hashlib.sha256(f"{self.seed}\n".encode() + os.fsencode(module)).digest()
        return replace(self, seed=int.from_bytes(mixed[:8], "big"))


def _number(given: Mapping[str, str], name: str) -> float:
    text = given.get(name, "0")
    if not _NUMBER.fullmatch(text):
        raise InvalidError(f"{name} of an exploration is a number, not {text!r}")
    return float(text)


def _seed(given: Mapping[str, str]) -> int:
    text = given.get("seed", "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= 20 and int(text) < 2**64):
        raise InvalidError(f"a seed is 0 to 2⁶⁴ − 1, not {text!r}")
    return int(text)


@dataclass(frozen=True)
class Resumption:
    """A session whose client sends the record again, because its server went away; see proto/SOCKET.md.

    Attributes:
        session: the session's id.
        digest: of the version that decided.
        alias: that the client asked for; empty: it named a version or a digest.

    """

    session: str
    digest: str
    alias: str = ""


@dataclass(frozen=True)
class SessionOptions:
    """The options of a session, besides its signature.

    Attributes:
        context: the module, or the first function, that is compiled.
        options: for the policy to read.
        labels: for people and trainers who look for the session.
        exploration: how to depart from the policy's best advice; ``None``: never.
        evaluates: whether the client can decide by the policy's form.
        resumes: the session whose record follows; ``None``: a new session begins.

    """

    context: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    exploration: Exploration | None = None
    evaluates: bool = False
    resumes: Resumption | None = None

    @property
    def file(self) -> str:
        """The source file: the label ``file``, or else the context. In a roll-out a file stays with one version."""
        return self.labels.get("file") or self.context


@dataclass(frozen=True)
class Outcome:
    """The result of a compilation.

    Attributes:
        values: numbers by name: ``text`` (bytes), ``cycles``, ``seconds``, …
        status: one word: ``ok``, ``crash``, ``timeout``, …; empty if unknown.
        contexts: numbers by name for parts of the module, by the part's context: a function's ``text``.

    Raises:
        InvalidError: a name is empty or not Unicode text, or a number is not finite.

    """

    values: Mapping[str, float] = field(default_factory=dict)
    status: str = ""
    contexts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_numbers(self.values)
        for context, values in self.contexts.items():
            if not is_unicode(context):
                raise InvalidError(f"an outcome's context is Unicode text, not {context!a}")
            _check_numbers(values)
        if not is_unicode(self.status):
            raise InvalidError(f"an outcome's status is Unicode text, not {self.status!a}")


def _check_numbers(values: Mapping[str, float]) -> None:
    # All at once: an outcome has several names, and nearly none has a fault.
    if all(values) and is_unicode("".join(values)) and all(map(isfinite, values.values())):
        return
    for name, value in values.items():
        if not (name and is_unicode(name)):
            raise InvalidError(f"an outcome's name is Unicode text and not empty; it was {name!a}")
        if not isfinite(value):
            raise InvalidError(f"the outcome {name!r} is a finite number, not {value}")

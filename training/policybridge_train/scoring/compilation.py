"""A compilation that can be run under limits, and shown to a person who wants to run it again."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from policybridge_client.decisions.answering import StoreConnection
from policybridge_client.llvm.config import HostConfig
from policybridge_train.compiling.hosted import compile_hosted
from policybridge_train.compiling.job import Compiled, Limits, compile_by
from policybridge_train.processes.pool import Running

_OWN: Final = (sys.executable, "-m", "policybridge_client.cli")
_STORE: Final = HostConfig("decisions", "decisions", fallback="error", growth_limit=float("inf"), timeout=3600)


def in_shell(words: Sequence[str]) -> str:
    """Give a command as a person copies it; words that cannot be printed are quoted as bash and zsh read them."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    known = {"\\": "\\\\", "'": "\\'"}
    bytes_ = (known.get(one, one) if one.isprintable() else _escaped(one) for one in word)
    return f"$'{''.join(bytes_)}'"


def _escaped(one: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in one.encode(errors="surrogateescape"))


class Compilation(Protocol):
    """A compilation.

    Attributes:
        way: how decisions come to the compiler: ``plain``, ``plugin`` or ``interactive``.

    """

    @property
    def way(self) -> str:
        """How decisions come to the compiler: ``plain``, ``plugin`` or ``interactive``."""
        ...

    def run(self, limits: Limits, running: Running) -> Compiled:
        """Compile; raise as `compile_by` does."""
        ...

    def shown(self) -> str:
        """Give the words for a shell; empty where there are none."""
        ...


@dataclass(frozen=True)
class Plain:
    """A compiler that asks nobody, or asks by itself."""

    command: Sequence[str]
    way: str = "plain"

    def run(self, limits: Limits, running: Running) -> Compiled:
        """Compile."""
        return compile_by(self.command, limits, running=running)

    def shown(self) -> str:
        """Give the command."""
        return in_shell(self.command)


@dataclass(frozen=True)
class ByPolicy:
    """A compiler that asks a policy in LLVM's interactive mode."""

    command: Sequence[str]
    host: HostConfig
    way: ClassVar[str] = "interactive"

    def run(self, limits: Limits, running: Running) -> Compiled:
        """Compile; where there is no answer, it fails."""
        return compile_hosted(self.command, self.host, limits, running)

    def shown(self) -> str:
        """Give the command behind ``policybridge run``."""
        asking = {
            "--policy": str(self.host.policy),
            "--server": self.host.server,
            "--task": self.host.task,
            "--fallback": "error",
            "--growth-limit": f"{self.host.growth_limit:g}",
        }
        words = [word for pair in asking.items() for word in pair]
        return in_shell([*_OWN, "run", *words, "--", *self.command])


@dataclass(frozen=True)
class ByStore:
    """A compiler that asks a store's decisions by sequence, in LLVM's interactive mode."""

    command: Sequence[str]
    answers: Mapping[str, bool]
    way: ClassVar[str] = "interactive"

    def run(self, limits: Limits, running: Running) -> Compiled:
        """Compile."""
        return compile_hosted(self.command, _STORE, limits, running, connection=StoreConnection(self.answers))

    def shown(self) -> str:
        """Give nothing: a section of a store is found by the name of a source, which a module of a corpus has not."""
        return ""

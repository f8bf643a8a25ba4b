"""Contenders of a score: plain LLVM, LLVM with other flags, a server's policy, or a store of decisions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from policybridge_client.decisions import read_store
from policybridge_client.llvm.bounds import GROWTH_LIMIT
from policybridge_client.llvm.tasks import INLINE
from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_train.compiling.compilation import Plain
from policybridge_train.compiling.decider import DECIDERS, Decider
from policybridge_train.farms.contract import Farm

_FLAGS: Final = "flag:"
_SOCKET: Final = "socket:"


@dataclass(frozen=True)
class Contender:
    """A decider with its names.

    Attributes:
        name: as the user gave it.
        argument: what names it on the command line in any folder.
        decider: what decides.

    """

    name: str
    argument: str
    decider: Decider

    @property
    def flags(self) -> Sequence[str] | None:
        """The flags that alone make its objects differ from LLVM's own; ``None`` for a policy or a store."""
        return self.decider.arguments if isinstance(self.decider, Plain) else None


@dataclass(frozen=True)
class Settings:
    """Options for all contenders.

    Attributes:
        server: the address of the server that has the policies; ``None`` if there is none.
        task: the task of the policies.
        growth_limit: the factor of a module's size that a policy may add to it.

    """

    server: str | None = None
    task: str = INLINE.name
    growth_limit: float = GROWTH_LIMIT


def parse_contender(text: str, settings: Settings, farm: Farm) -> Contender:
    """Read a contender from the command line.

    ``default`` is LLVM as it is; ``flag:WORD,WORD`` adds arguments of cc1; the path of a file is that of a store;
    anything else is a policy, ``NAME``, ``NAME@VERSION`` or ``NAME@ALIAS``.

    Raises:
        InvalidError: it is none of them, a broken store, or a policy without a server.
        NotFoundError: there is no such file.

    """
    if text == "default":
        return Contender(text, text, _made("plain"))
    if text.startswith(_FLAGS):
        words = tuple(filter(None, text.removeprefix(_FLAGS).split(",")))
        if not words:
            raise InvalidError(f"{text!r} names no flag; write flag:-mllvm,-inline-threshold=15")
        return Contender(text, text, _made("plain", words))
    path = Path(text)
    if path.is_file():
        read_store(path)
        return Contender(text, str(path.absolute()), _made("store", path.absolute(), farm.share_file(path.absolute())))
    if "/" in text or text.endswith(".db"):
        raise NotFoundError(f"there is no store at {text}")
    if settings.server is None:
        raise InvalidError(f"{text!r} is neither 'default', flag:…, nor a file, so it is a policy: it needs --server")
    server = absolute_server(settings.server)
    return Contender(text, text, _made("policy", text, server, settings.task, settings.growth_limit))


def _made(name: str, *arguments: Any) -> Decider:
    return cast("Callable[..., Decider]", DECIDERS.load(name))(*arguments)


def absolute_server(address: str) -> str:
    """Give the address of a socket by its absolute path, so that it is right in any folder."""
    kind, colon, rest = address.partition(":")
    return f"{kind}{colon}{Path(rest).absolute()}" if address.startswith(_SOCKET) else address

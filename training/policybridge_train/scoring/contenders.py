"""What is compared: LLVM as it is, LLVM with other flags, a policy of a server, or a store of decisions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol

from policybridge_client.decisions import Heading, Section, Store, read_store
from policybridge_client.decisions.store import By
from policybridge_client.llvm.asked import level_of
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.config import GROWTH_LIMIT, HostConfig
from policybridge_client.llvm.plugins import find_plugin, loads_early
from policybridge_client.llvm.tasks import INLINE
from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_serdes import PolicyReference
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.module import Module
from policybridge_train.scoring.compilation import ByPolicy, ByStore, Compilation, Plain

_FLAGS: Final = "flag:"
_SOCKET: Final = "socket:"


class Contender(Protocol):
    """What is compared.

    Attributes:
        name: as the user gave it.

    """

    @property
    def name(self) -> str:
        """The name, as the user gave it."""
        ...

    @property
    def argument(self) -> str:
        """What names it on the command line in any folder."""
        ...

    def flags(self) -> Sequence[str] | None:
        """Give what alone makes its objects differ from LLVM's own: flags. ``None`` where it is something else."""
        ...

    def compilation(self, compiler: Compiler, module: Module, output: Path, extra: Sequence[str] = ()) -> Compilation:
        """Give the compilation of a module to an object, with ``extra`` arguments of cc1.

        Raises:
            PolicyBridgeError: this compiler cannot do it; the message says what is missing.

        """
        ...


@dataclass(frozen=True)
class Flags:
    """LLVM as it is, with further arguments of ``clang -cc1``; none for the default."""

    name: str
    arguments: tuple[str, ...] = ()

    @property
    def argument(self) -> str:
        """The name."""
        return self.name

    def flags(self) -> Sequence[str] | None:
        """Give the arguments."""
        return self.arguments

    def compilation(self, compiler: Compiler, module: Module, output: Path, extra: Sequence[str] = ()) -> Compilation:
        """Give the plain compilation."""
        return Plain(compiler.command(module, output, [*extra, *self.arguments]))


@dataclass(frozen=True)
class Settings:
    """What the user says once for all contenders.

    Attributes:
        server: the address of the server that has the policies; ``None`` if there is none.
        task: what the policies decide.
        plugins: a folder in which plugins are looked for first.
        interactive: whether LLVM's interactive mode is used even where there is a plugin.
        growth_limit: what a policy may add to a module, as a factor of its size.

    """

    server: str | None = None
    task: str = INLINE.name
    plugins: Path | None = None
    interactive: bool = False
    growth_limit: float = GROWTH_LIMIT

    def plugin(self, command: CompilerCommand) -> Path | None:
        """Give the inliner's plugin for a compiler; ``None`` if there is none, or none is wanted."""
        return None if self.interactive else find_plugin(command, self.plugins)


@dataclass(frozen=True)
class Served:
    """A policy of a server: asked by the plugin where there is one for the compiler, else in LLVM's interactive mode.

    Raises:
        InvalidError: the name is that of no policy.

    """

    name: str
    server: str
    settings: Settings = Settings()

    def __post_init__(self) -> None:
        PolicyReference.parse(self.name)

    @property
    def argument(self) -> str:
        """The name."""
        return self.name

    def flags(self) -> Sequence[str] | None:
        """Give nothing: the policy decides."""
        return None

    def compilation(self, compiler: Compiler, module: Module, output: Path, extra: Sequence[str] = ()) -> Compilation:
        """Give the compilation that asks; where there is no answer, it fails."""
        command = CompilerCommand.of(compiler.command(module, output, extra))
        growth = f"{self.settings.growth_limit:g}"
        asks = self.settings.task == INLINE.name and self.server.startswith(_SOCKET)
        plugin = self.settings.plugin(command) if asks else None
        if plugin is None:
            words = [*command.start, *command.arguments]
            return ByPolicy(
                words,
                HostConfig(
                    self.name,
                    self.server,
                    task=self.settings.task,
                    fallback="error",
                    growth_limit=self.settings.growth_limit,
                ),
            )
        settings = {"server": self.server, "policy": self.name, "fallback": "error", "growth-limit": growth}
        return _by_plugin(command, plugin, {f"policybridge-{name}": value for name, value in settings.items()})


@dataclass(frozen=True)
class Stored:
    """A store of decisions, applied by the plugin, or in LLVM's interactive mode if it has decisions by sequence.

    Raises:
        InvalidError: the file is no store.

    """

    name: str
    path: Path
    settings: Settings = Settings()

    def __post_init__(self) -> None:
        _ = self.store

    def __getstate__(self) -> dict[str, object]:
        # The file is sent, and read again where it is used.
        return {name: value for name, value in vars(self).items() if name != "store"}

    @cached_property
    def store(self) -> Store:
        """The decisions."""
        return read_store(self.path)

    @property
    def argument(self) -> str:
        """The absolute path."""
        return str(self.path)

    def flags(self) -> Sequence[str] | None:
        """Give nothing: the store decides."""
        return None

    def compilation(self, compiler: Compiler, module: Module, output: Path, extra: Sequence[str] = ()) -> Compilation:
        """Give the compilation with the store's decisions; plain where it has none for the module."""
        command = CompilerCommand.of(compiler.command(module, output, extra))
        sequence = self._section(command, compiler.major, module, "sequence")
        site = self._section(command, compiler.major, module, "site")
        plugin = self.settings.plugin(command) if site or not sequence else None
        if plugin is not None:
            settings = {"decisions": str(self.path), "module": module.name, "fallback": "error"}
            return _by_plugin(command, plugin, {f"policybridge-{name}": value for name, value in settings.items()})
        words = [*command.start, *command.arguments]
        if sequence:
            return ByStore(words, sequence.answers)
        if site:
            raise PreconditionError(
                f"{self.name} names decisions by their sites, for which {compiler.name} needs the plugin "
                f"policybridge-inliner-{compiler.major}.so; give its folder by --plugins (docs/plugin.md)"
            )
        return Plain(words)

    def _section(self, command: CompilerCommand, major: int, module: Module, by: By) -> Section | None:
        return self.store.section_for(Heading(major, level_of(command), by, None, module.name))


def parse_contender(text: str, settings: Settings) -> Contender:
    """Read a contender from the command line.

    ``default`` is LLVM as it is; ``flag:WORD,WORD`` adds arguments of cc1; the path of a file is that of a store;
    anything else is a policy, ``NAME``, ``NAME@VERSION`` or ``NAME@ALIAS``.

    Raises:
        InvalidError: it is none of them, a broken store, or a policy without a server.
        NotFoundError: there is no such file.

    """
    if text == "default":
        return Flags(text)
    if text.startswith(_FLAGS):
        words = tuple(filter(None, text.removeprefix(_FLAGS).split(",")))
        if not words:
            raise InvalidError(f"{text!r} names no flag; write flag:-mllvm,-inline-threshold=15")
        return Flags(text, words)
    path = Path(text)
    if path.is_file():
        return Stored(text, path.absolute(), settings)
    if "/" in text or text.endswith(".db"):
        raise NotFoundError(f"there is no store at {text}")
    if settings.server is None:
        raise InvalidError(f"{text!r} is neither 'default', flag:…, nor a file, so it is a policy: it needs --server")
    return Served(text, absolute_server(settings.server), settings)


def absolute_server(address: str) -> str:
    """Give the address of a socket by its absolute path, so that it is right in any folder."""
    kind, colon, rest = address.partition(":")
    return f"{kind}{colon}{Path(rest).absolute()}" if address.startswith(_SOCKET) else address


def _by_plugin(command: CompilerCommand, plugin: Path, settings: dict[str, str]) -> Plain:
    flags = [f"-{name}={value}" for name, value in settings.items()]
    return Plain(command.with_plugin(str(plugin), flags, early=loads_early(command)), "plugin")

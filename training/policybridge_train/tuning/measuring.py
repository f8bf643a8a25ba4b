"""One compile of a search: what was asked and decided, and what became of every function."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_client.decisions import (
    By,
    Decision,
    Heading,
    Level,
    Section,
    SiteLog,
    Store,
    format_store,
    read_sites,
)
from policybridge_client.decisions.store import LEVELS
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.plugins import loads_early
from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.job import Limits, compile_by
from policybridge_train.compiling.module import Module
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.objects.names import as_utf8
from policybridge_train.objects.unwinding import function_bytes
from policybridge_train.processes.pool import Running

NUMBERS: Final = (
    "callee_local",
    "callee_uses",
    "cost",
    "threshold",
    "caller_instructions",
    "callee_instructions",
    "callee_blocks",
    "constant_arguments",
    "arguments",
    "loop_depth",
)
"""What is known about a site beside its names, in the order of `Site.numbers`."""

Decisions = Mapping[str, bool]
"""By site: whether to inline; LLVM decides about all others."""


class Site(msgspec.Struct, frozen=True, array_like=True):
    """A call that was asked about, as the log of sites has it (`policybridge_client.decisions.SiteLog`)."""

    key: str
    caller: str
    callee: str
    default: bool
    taken: bool
    inlined: bool
    numbers: tuple[float, ...]


class Measurement(msgspec.Struct, frozen=True):
    """What one compile came to.

    Attributes:
        text: bytes that are loaded and not written.
        exec: bytes of code.
        functions: bytes of each function that the object has, with its part of the unwind and exception tables.
        sites: what was asked, in order.
        level: of the module's functions.
        digest: of the module as the pipeline starts.
        object_digest: SHA-256 of the object file, in hex.
        weak: those of the functions of which a linker keeps one copy, where several objects have them.

    """

    text: int
    exec: int
    functions: dict[str, int]
    sites: list[Site]
    level: Level
    digest: str
    object_digest: str
    weak: tuple[str, ...] = ()

    def deviations(self) -> dict[str, bool]:
        """Give the decisions that differ from LLVM's own: a compile with these alone makes the same object."""
        return {site.key: site.taken for site in self.sites if site.taken != site.default}


class CompileError(PolicyBridgeError):
    """The compiler failed, crashed, or came to a limit."""


class Measurer(Protocol):
    """Compiles a module with decisions."""

    @property
    def by(self) -> By:
        """What the keys of its sites are made of."""
        ...

    def measure(self, module: Module, decisions: Decisions, keep: Path | None = None) -> Measurement:
        """Compile once; ``keep`` is where the object is copied to.

        Raises:
            CompileError: there is no object; the message says what the compiler said.

        """
        ...


@dataclass(frozen=True)
class PluginMeasurer:
    """Compiles with the plugin ``policybridge-inliner``, which takes decisions from a store and logs all sites.

    Attributes:
        running: where each compiler is counted while it runs.

    """

    compiler: Compiler
    plugin: Path
    limits: Limits
    running: Running
    by: By = "site"

    def measure(self, module: Module, decisions: Decisions, keep: Path | None = None) -> Measurement:
        """Compile once; see `Measurer`."""
        with TemporaryDirectory(prefix="policybridge-tune-") as name:
            folder = Path(name)
            options = [f"-policybridge-sites={folder / 'sites'}", f"-policybridge-module={module.name}"]
            if decisions:
                write_trial(decisions, module, self.compiler.major, folder / "store")
                options.append(f"-policybridge-decisions={folder / 'store'}")
            compiling = CompilerCommand.of(self.compiler.command(module, folder / "object"))
            command = compiling.with_plugin(str(self.plugin), options, early=loads_early(compiling))
            done = compile_by(command, self.limits, running=self.running)
            if not done.ok:
                raise CompileError(f"{module.name}: {done.status.value}: {done.message}")
            if not (folder / "sites").exists():
                raise CompileError(
                    f"{module.name}: LLVM does not inline at its level (-O0): record it at another one (--level Oz)"
                )
            log = read_sites(folder / "sites")
            found = measured(ObjectFile.read(folder / "object"), log, log.numbers)
            if keep is not None:
                copyfile(folder / "object", keep)
            return found


def write_trial(decisions: Decisions, module: Module, major: int, path: Path) -> None:
    """Write a store for one compile, which fits the module whatever the level of its functions is."""
    made = tuple(Decision(key, inline) for key, inline in decisions.items())
    sections = [Section(Heading(major, level, "site", None, module.name), made) for level in LEVELS]
    # Not by `write_store`, which waits for the disk: this file is read once, and gone.
    path.write_bytes(format_store(Store(sections)))


def measured(made: ObjectFile, log: SiteLog, known: Mapping[str, npt.NDArray[np.float64]]) -> Measurement:
    """Put together what a compile came to; ``known`` has the columns `NUMBERS` of the sites."""
    flags = (log.default.tolist(), log.taken.tolist(), log.inlined.tolist())
    numbers = zip(*(known[name].tolist() for name in NUMBERS), strict=True)
    names = (map(as_utf8, log.caller), map(as_utf8, log.callee))
    sites = list(map(Site, log.keys, *names, *flags, numbers))
    return Measurement(
        made.text,
        made.exec,
        {as_utf8(name): size for name, size in function_bytes(made).items()},
        sites,
        log.level,
        log.digest or "",
        made.digest,
        tuple(map(as_utf8, made.weak)),
    )

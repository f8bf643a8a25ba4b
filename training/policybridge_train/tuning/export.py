"""``policybridge autotune export``: a module's decisions for LLVM's own replay, checked by compiling with it."""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_client.decisions import SiteLog, Store, format_store, read_sites, read_store
from policybridge_client.llvm.compilers import CompilerCommand, Kind
from policybridge_client.llvm.plugins import find_plugin, loads_early
from policybridge_client.llvm.record import output_index
from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_core.lacking import lacking
from policybridge_train.compiling.compilation import compile_command
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.corpus.description import Corpus
from policybridge_train.processes.process import compile_by
from policybridge_train.tuning.replaying import Replay, flags_for, replay_of

_DIFFERENT: Final = 1
_USAGE: Final = 2
_SHOWN: Final = 20
"""Decisions that cannot be said which are named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "Exit status: 0; 1 if LLVM's replay makes another object; 2 for what cannot be done."
    parser.description = (
        "Writes the decisions of one module for LLVM's own replay, which needs no plugin, and compiles with it to see "
        "whether the object is that of the plugin. LLVM finds calls by their location, so the command has to make line "
        "tables (-gline-tables-only, -g1 or -g; best with -fdebug-info-for-profiling), here and wherever the file is "
        "used. Exit status: 0 identical, 1 the "
        "replay gives another object, 2 not possible."
    )
    parser.usage = (
        "policybridge autotune export --store FILE -o FILE [--plugins DIR] -- COMPILER ARGUMENT…\n"
        "       policybridge autotune export --store FILE -o FILE [--plugins DIR] --corpus DIR --module NAME "
        "[--compiler NAME]"
    )
    add = parser.add_argument
    add("--store", required=True, type=Path, metavar="FILE", help="the store of decisions")
    add("-o", "--output", required=True, type=Path, metavar="FILE", help="the file for LLVM")
    add("--plugins", type=Path, metavar="DIR", help="where the plugins are, besides POLICYBRIDGE_PLUGINS")
    add("--corpus", type=Path, metavar="DIR", help="a corpus whose bitcode has line tables, for a command")
    add("--module", metavar="NAME", help="the corpus' module")
    add("--compiler", default="clang-22", metavar="NAME", help="for --corpus (default: %(default)s)")
    add("command", nargs=argparse.REMAINDER, metavar="-- COMPILER ARGUMENT…", help="compiles one source to an object")


def run(arguments: argparse.Namespace) -> int:
    """Export, check, and print the result; return the exit status."""
    try:
        exported = export(_order(arguments))
    except (PolicyBridgeError, OSError) as error:
        sys.stderr.write(f"policybridge autotune export: {error}\n")
        return _USAGE
    print(_told(exported, arguments.output))
    return 0 if exported.identical else _DIFFERENT


@dataclass(frozen=True)
class Order:
    """The module and the compiler of an export.

    Attributes:
        store: the store.
        output: the file for LLVM.
        command: compiles the module.
        module: its name in the store; empty: its source.
        plugins: a folder of plugins.

    """

    store: Path
    output: Path
    command: Sequence[str]
    module: str = ""
    plugins: Path | None = None


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        replay: the lines of the file.
        log: of the compilation with the plugin.
        identical: whether the replay gives the same object as the plugin with the decisions about inlining.
        store: of the decisions.
        passes: whether the store has choices of passes, too.

    """

    replay: Replay
    log: SiteLog
    identical: bool
    store: Store
    passes: bool = False


def _order(arguments: argparse.Namespace) -> Order:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if bool(command) == bool(arguments.corpus):
        raise InvalidError("give either a command behind --, or --corpus and --module")
    if not arguments.corpus:
        return Order(arguments.store, arguments.output, command, "", arguments.plugins)
    modules = {module.name: module for module in Corpus.open(arguments.corpus).modules}
    if arguments.module not in modules:
        raise NotFoundError(f"the corpus has no module {arguments.module!r}; --module names one of {len(modules)}")
    words = compile_command(Compiler.find(arguments.compiler), modules[arguments.module], Path("object.o"))
    return Order(arguments.store, arguments.output, words, arguments.module, arguments.plugins)


def export(order: Order) -> Exported:
    """Write the replay of a module's decisions, and compile with it.

    Raises:
        InvalidError: the store or the command is none.
        NotFoundError: there is no store, or no compiler.
        PreconditionError: there is no plugin for the compiler, or it fails.
        OSError: the file cannot be written.

    """
    compiler = CompilerCommand.of(order.command)
    if compiler.kind not in (Kind.CLANG, Kind.CC1):
        raise InvalidError(f"an object is compiled with clang, not with {compiler.kind.value}")
    store = read_store(order.store)
    plugin = find_plugin(compiler, order.plugins)
    if plugin is None:
        raise PreconditionError(
            lacking(f"there is no plugin that {compiler.start[-1]} loads (--plugins): it tells where each decision is")
        )
    with TemporaryDirectory(prefix="policybridge-export-") as name:
        return _Export(order, compiler, plugin, Path(name), store).run()


@dataclass(frozen=True)
class _Export:
    order: Order
    compiler: CompilerCommand
    plugin: Path
    folder: Path
    store: Store

    def run(self) -> Exported:
        passes = any(section.passes for section in self.store.sections)
        if passes:
            inlining = [replace(section, passes=()) for section in self.store.sections]
            self._inlining.write_bytes(format_store(Store([each for each in inlining if each.decisions])))
        tuned = self._compiled("tuned.o", self._with_plugin)
        if not (self.folder / "sites").exists():
            raise PreconditionError(f"LLVM does not inline in {shlex.join(self.order.command)}: give it -O1 or more")
        log = read_sites(self.folder / "sites")
        replay = replay_of(log)
        self.order.output.write_bytes(replay.text)
        replayed = self._compiled("replayed.o", self._with_replay)
        return Exported(replay, log, tuned == replayed, self.store, passes)

    @property
    def _inlining(self) -> Path:
        """The store without its choices of passes, if it has any: LLVM's replay knows none."""
        return self.folder / "store"

    def _with_plugin(self, compiler: CompilerCommand) -> list[str]:
        store = self._inlining if self._inlining.exists() else self.order.store.absolute()
        flags = [
            f"-policybridge-decisions={store}",
            f"-policybridge-sites={self.folder / 'sites'}",
            "-policybridge-fallback=error",
        ]
        if self.order.module:
            flags.append(f"-policybridge-module={self.order.module}")
        return compiler.with_plugin(str(self.plugin), flags, early=loads_early(compiler))

    def _with_replay(self, compiler: CompilerCommand) -> list[str]:
        return compiler.with_flags(list(flags_for(str(self.order.output.absolute()))))

    def _compiled(self, output: str, with_flags: Callable[[CompilerCommand], list[str]]) -> bytes:
        made = self.folder / output
        words = with_flags(_to(self.compiler, made))
        ours = {name: text for name, text in os.environ.items() if not name.startswith("POLICYBRIDGE_")}
        done = compile_by(words, Limits(), {**ours, "CCACHE_DISABLE": "1"})
        if not done.ok or not made.is_file():
            shown = shlex.join(self.order.command)
            raise PreconditionError(f"the compiler made no object ({shown}): {done.message or 'it said nothing'}")
        return made.read_bytes()


def _to(compiler: CompilerCommand, output: Path) -> CompilerCommand:
    place = output_index(compiler.arguments)
    words = compiler.arguments
    if place is None:
        return replace(compiler, arguments=(*words, "-o", str(output)))
    return replace(compiler, arguments=(*words[:place], str(output), *words[place + 1 :]))


def _nothing_of(log: SiteLog, store: Store) -> str:
    known = [f"{each.heading.path} (LLVM {each.heading.llvm}, -{each.heading.level})" for each in store.sections]
    shown = ", ".join(known[:_SHOWN]) + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "")
    return f"the store has no decisions for {log.path} at -{log.level}; it has some for {shown or 'nothing'}"


def _told(exported: Exported, output: Path) -> str:
    replay, log = exported.replay, exported.log
    lines = [f"{output}: {replay.said} decisions of {log.path}"]
    if log.applied < log.of:
        lines[0] += f" ({log.applied} of the store's {log.of} applied)"
    if not log.of:
        lines.append(_nothing_of(log, exported.store))
    lines += [f"not said: {unsaid}" for unsaid in replay.unsaid[:_SHOWN]]
    if len(replay.unsaid) > _SHOWN:
        lines.append(f"not said: {len(replay.unsaid) - _SHOWN} more")
    if exported.passes:
        lines.append("the store's choices of passes are left out: LLVM's replay is about inlining alone")
    if exported.identical:
        lines.append("LLVM's replay gives the identical object; compile with the same flags and")
    else:
        lines.append("LLVM's replay gives another object than the plugin; it compiles with")
    flags = " ".join(f"-mllvm {shlex.quote(flag)}" for flag in flags_for(str(output)))
    return "\n".join([*lines, f"  {flags}"])

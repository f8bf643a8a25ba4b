"""The modules, tools and files of an autotune's search."""

import argparse
import fcntl
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_core.lacking import lacking
from policybridge_server.repository import BUNDLED
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.job import FarmCompiler
from policybridge_train.compiling.options import Selection, compiler_of, limits_of
from policybridge_train.corpus.bitcode import FrontEnd
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.link_time import check_link_time
from policybridge_train.corpus.notes import BuildCommand
from policybridge_train.corpus.nothing import why_nothing
from policybridge_train.farms.contract import Farm
from policybridge_train.farms.options import farm_of
from policybridge_train.tasks.inline import InlineForSize
from policybridge_train.tasks.recipe import TaskRecipe
from policybridge_train.tuning.applying import Ending
from policybridge_train.tuning.building import built, converted
from policybridge_train.tuning.choices import Gains
from policybridge_train.tuning.compilers import BuildCompilers
from policybridge_train.tuning.progress import Progress
from policybridge_train.tuning.ranking import Ranking
from policybridge_train.tuning.sharing import Sharing
from policybridge_train.tuning.starting import PolicyStart
from policybridge_train.tuning.storing import StoreKeeper
from policybridge_train.tuning.tools import INLINE, KINDS, PASSES, Tools
from policybridge_train.tuning.tuned_compiler import TunedCompiler


@dataclass(frozen=True)
class AutotuneWork:
    """The modules, tools and files of a search.

    Attributes:
        commands: of the build; empty for a corpus.
        names: the module of each object of the build.
        folder: of the search's progress.

    """

    arguments: argparse.Namespace
    commands: Sequence[BuildCommand]
    corpus: Corpus
    names: Mapping[Path, str]
    tool: CompileTool
    farm: Farm
    keeper: StoreKeeper
    folder: Path
    ending: Ending

    @classmethod
    def prepared(cls, arguments: argparse.Namespace, held: ExitStack) -> "AutotuneWork":
        """Build, find the compiler and convert the build's modules.

        Args:
            arguments: of the command.
            held: keeps the lock of the search's folder, and the farm.

        Raises:
            PolicyBridgeError: the build fails, or there is nothing to tune.

        """
        folder = held.enter_context(_work_folder(arguments.store))
        commands = (
            built(arguments.build, folder, sys.stderr.buffer if arguments.json else None) if arguments.build else ()
        )
        compilers = BuildCompilers.of(commands)
        tool = tool_of(arguments, _compiler(arguments, commands, compilers))
        keeper = StoreKeeper(arguments.store, tool.compiler.major, tool.by, None if arguments.corpus else Path.cwd())
        farm = held.enter_context(farm_of(arguments))
        if arguments.lto:
            check_link_time(tool, farm, Selection.of(arguments))
        tuned = TunedCompiler(arguments.store, tool.compiler, compilers, arguments.plugins, arguments.lto, tool.plugin)
        ending = Ending(tuned, arguments.build)
        corpus, names = _opened(commands, arguments, tool, folder)
        return cls(arguments, commands, corpus, names, tool, farm, keeper, folder, ending)

    @property
    def compiling(self) -> FarmCompiler:
        """The compiler of all modules."""
        return FarmCompiler(self.farm, self.tool.recipe)

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of decisions that are searched."""
        return self.arguments.decide or (KINDS if self.tool.plugin else (INLINE,))

    @property
    def searching(self) -> str:
        """The words that tell this search from those with other settings, which go on apart."""
        given = self.arguments
        words = f"{self.tool.compiler.version} by {self.tool.by}{' linked' * given.linked}"
        words += f" from {given.policy}" if given.policy else ""
        words += f" lto {given.lto}" if given.lto else ""
        words += f" decide {','.join(self.kinds)}"
        return words + (f" spare {','.join(sorted(given.spare))}" if given.spare else "")

    def tools(self, sharing: Sharing | None, held: ExitStack) -> Tools:
        """Make the tools that the searches of all modules share."""
        given = self.arguments
        progress = held.enter_context(Progress(self.folder / "progress.db"))
        ranking = Ranking()
        ranking.add(progress.labels())
        return Tools(
            self.compiling,
            ranking,
            progress,
            given.budget,
            self.keeper.start,
            self.farm.running,
            self.searching,
            sharing,
            held.enter_context(_policy_start(given, self.tool, self.farm)).of if given.policy else None,
            self.kinds,
            Gains(late=given.lto == "full"),
            given.spare,
        )


def _compiler(arguments: argparse.Namespace, commands: Sequence[BuildCommand], compilers: BuildCompilers) -> Compiler:
    """Give the compiler that is asked for, or that of the build: a store applies to the compiler of its search."""
    if arguments.build and not +compilers.sources:
        raise NotFoundError(why_nothing(commands))
    if arguments.level == "own" and not compilers.is_optimised:
        raise PreconditionError(
            "the build does not optimise (-O0), so there is nothing to decide: build at -Oz or -O2, or give --level Oz"
        )
    is_for_speed = arguments.objective == "cycles"
    if is_for_speed and compilers.left_to_link and not compilers.links[""]:
        raise PreconditionError(
            f"{compilers.left_to_link}, and --objective cycles does not search there: build without -flto"
        )
    for note in compilers.notes(lto=arguments.lto, speed=is_for_speed):
        sys.stderr.write(f"policybridge autotune: {note}\n")
    if arguments.compiler or arguments.corpus:
        return compiler_of(arguments)
    chosen = compilers.chosen()
    for other in compilers.clangs[1:]:
        sys.stderr.write(f"policybridge autotune: the build uses {other.name}, too, which is not tuned\n")
    return chosen


def tool_of(arguments: argparse.Namespace, compiler: Compiler) -> CompileTool:
    """Find the compiler's plugin, if it loads one.

    Raises:
        NotFoundError: there is no such compiler, or no plugin in the folder that is asked for.
        PreconditionError: an option needs the plugin.

    """
    found = CompileTool(compiler, limits_of(arguments), plugins=arguments.plugins)
    # Raises now if the program is no clang.
    _ = found.compiler.version
    wanted = f"policybridge-inliner-{found.compiler.major}.so"
    if found.plugin is None and PASSES in (arguments.decide or ()):
        raise PreconditionError(lacking(f"passes are chosen by the plugin {wanted}: give its folder (--plugins)"))
    if found.plugin is None and arguments.objective == "cycles":
        raise PreconditionError(lacking(f"--objective cycles needs the plugin {wanted}: give its folder (--plugins)"))
    if found.plugin is None and arguments.plugins is not None:
        raise NotFoundError(lacking(f"{arguments.plugins} holds no {wanted} that {found.compiler.name} loads"))
    return found


def _policy_start(arguments: argparse.Namespace, tool: CompileTool, farm: Farm) -> PolicyStart:
    if tool.plugin is None:
        wanted = f"policybridge-inliner-{tool.compiler.major}.so"
        raise PreconditionError(lacking(f"--from needs the plugin {wanted}: it tells where a policy decided what"))
    options = {
        "compiler": tool.compiler.start[0],
        "plugins": str(tool.plugin.parent),
        "seconds": f"{arguments.seconds:g}",
        "memory": str(arguments.memory),
    }
    task = InlineForSize(**options)
    recipe = TaskRecipe.of(task, task.name, options, None)
    return PolicyStart(task, recipe, farm, arguments.repository or BUNDLED, arguments.policy)


def _opened(
    commands: Sequence[BuildCommand], arguments: argparse.Namespace, tool: CompileTool, work: Path
) -> tuple[Corpus, Mapping[Path, str]]:
    """Give the corpus, and the module of each object of a build."""
    if arguments.corpus:
        return Corpus.open(arguments.corpus), {}
    level = None if arguments.level == "own" else arguments.level
    front_end = FrontEnd(tool.compiler, level, lines=False, limits=tool.limits, profiles=True)
    return converted(commands, front_end, work / "corpus", arguments.jobs or os.cpu_count() or 1)


@contextmanager
def _work_folder(store: Path) -> Iterator[Path]:
    """Give the folder of a search's progress, and lock it for the block."""
    work = store.with_name(f"{store.name}.work")
    work.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor, store)
        # The store is for the user's repository, and this folder is not.
        (work / ".gitignore").write_text("*\n", encoding="ascii")
        yield work
    finally:
        os.close(descriptor)


def _lock(descriptor: int, store: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PreconditionError(f"another policybridge autotune works on {store}; wait until it has ended") from error

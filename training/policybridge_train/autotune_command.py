"""``policybridge autotune``: a smaller program from a build or a corpus, and a store that keeps it so."""

import argparse
import fcntl
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

from policybridge_client.decisions import read_store
from policybridge_client.decisions.finding import NAME
from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_core.lacking import lacking
from policybridge_server.repository import BUNDLED
from policybridge_train.command_line import count, status_of
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.job import FarmCompiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.linker import Linker
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.options import (
    Selection,
    add_compiler,
    add_level,
    add_limits,
    add_lto,
    add_plugins,
    add_selection,
    compiler_of,
    limits_of,
)
from policybridge_train.corpus.bitcode import FrontEnd
from policybridge_train.corpus.building import why_nothing
from policybridge_train.corpus.description import Corpus, programs_of
from policybridge_train.corpus.link_time import AtLinkTime, Preparing, check_link_time, link_time_of
from policybridge_train.corpus.notes import BuildCommand
from policybridge_train.corpus.selecting import selected
from policybridge_train.farms.contract import Farm
from policybridge_train.farms.options import add_farm, farm_of
from policybridge_train.speed.tuning import SpeedTuning, add_speed, asked_of, check_speed
from policybridge_train.tasks.inline import InlineForSize
from policybridge_train.tasks.recipe import TaskRecipe
from policybridge_train.tuning.applying import Ending
from policybridge_train.tuning.autotuner import Autotuner
from policybridge_train.tuning.building import built, converted, tell_untuned
from policybridge_train.tuning.choices import Gains
from policybridge_train.tuning.compilers import BuildCompilers
from policybridge_train.tuning.confirming import confirm
from policybridge_train.tuning.linked import Objects, Programs, link
from policybridge_train.tuning.module import INLINE, KINDS, PASSES, ModuleTuning, Tools
from policybridge_train.tuning.progress import Progress
from policybridge_train.tuning.ranking import Ranking
from policybridge_train.tuning.sharing import Sharing
from policybridge_train.tuning.starting import PolicyStart
from policybridge_train.tuning.storing import StoreKeeper
from policybridge_train.tuning.telling import Telling


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.usage = "policybridge autotune [--store FILE] [options] (--corpus DIR | -- BUILD COMMAND…)"
    parser.epilog = (
        "Exit status: 0; 1 if no module compiled; 2 for what cannot be done, such as a build that fails; 130 after an "
        "interrupt."
    )
    add = parser.add_argument
    add(
        "--store",
        default=Path(NAME),
        type=Path,
        metavar="FILE",
        help="the tuned decisions, a file to ship with the code (default: %(default)s, which compilations find)",
    )
    add("--corpus", type=Path, metavar="DIR", help="tune the modules of a corpus, instead of a build's")
    add(
        "--from",
        dest="policy",
        metavar="POLICY",
        help="begin with a policy's decisions: NAME, NAME@VERSION; by plugin",
    )
    add("--repository", type=Path, metavar="DIR", help="the folder of this policy (default: the bundled ones)")
    add_selection(parser)
    add("--budget", type=count, default=16, metavar="N", help="compiles of each module (default: %(default)s)")
    add("--decide", type=_kinds, metavar="KINDS", help="inline, passes, or both with a comma between (default: both)")
    add(
        "--spare",
        action="append",
        default=[],
        metavar="FUNCTION",
        help="LLVM alone decides about functions with such names, which must not become slower; repeatable",
    )
    add("--minutes", type=_minutes, metavar="M", help="end after this time; a later run goes on (default: the budget)")
    add_compiler(parser, default="the build's clang; for a corpus the newest clang")
    add_level(parser, "own")
    add_lto(parser)
    add_plugins(parser)
    add_farm(parser)
    add_limits(parser, Limits())
    add_speed(parser)
    add("--linked", action="store_true", help="make programs smaller, with what their modules share counted once")
    add("--json", action="store_true", help="write the result as JSON to standard output, all else to standard error")
    add("build", nargs="*", metavar="-- COMMAND", help="the build: make -j8")


def run(arguments: argparse.Namespace) -> int:
    """Tune. The exit status is 0; 1 if no module compiled, 2 for what cannot be done, 130 after an interrupt."""

    def kept() -> str:
        if arguments.objective == "cycles":
            return "the store is as it was; the same command goes on from the best program that was run"
        is_there = arguments.store.is_file()
        return "the best so far is in the store" if is_there else "there is no store yet; the same command begins again"

    return status_of("autotune", lambda: _tune(arguments), kept)


def _tune(arguments: argparse.Namespace) -> int:
    _check(arguments)
    linker = Linker.find() if arguments.linked else None
    with ExitStack() as held:
        work = held.enter_context(_work_folder(arguments.store))
        commands = built(arguments.build, sys.stderr.buffer if arguments.json else None) if arguments.build else ()
        compilers = BuildCompilers.of(commands)
        tool = _tool(arguments, _compiler(arguments, commands, compilers))
        compiler = tool.compiler
        keeper = StoreKeeper(arguments.store, compiler.major, tool.by, None if arguments.corpus else Path.cwd())
        farm = held.enter_context(farm_of(arguments))
        if arguments.lto:
            check_link_time(tool, farm, Selection.of(arguments))
        compiling = FarmCompiler(farm, tool.recipe)
        ending = Ending(
            arguments.store, compiler, arguments.build, compilers, arguments.plugins, arguments.lto, tool.plugin
        )
        corpus, names = _opened(commands, arguments, tool, work)
        kinds = arguments.decide or (KINDS if tool.plugin else (INLINE,))
        if arguments.objective == "cycles":
            keeper.expect(corpus.modules)
            modules = selected(corpus, Selection.of(arguments))
            faster = SpeedTuning(commands, modules, names, compiling, farm.running, farm.slots, keeper, work)
            return faster.run(arguments, asked_of(arguments, kinds), tool.limits, ending)
        progress = held.enter_context(Progress(work / "progress.db"))
        at_link = _at_link_time(corpus, arguments, tool, farm, work) if arguments.lto else None
        chosen = _chosen(corpus, arguments) if at_link is None else [part for each in at_link for part in each.parts]
        keeper.expect(corpus.modules if at_link is None else chosen)
        ranking = Ranking()
        ranking.add(progress.labels())
        programs = programs_of(corpus)
        sharing = Sharing(programs) if linker else None
        policy = held.enter_context(_policy_start(arguments, tool, farm)).of if arguments.policy else None
        searching = f"{compiler.version} by {tool.by}{' linked' * arguments.linked}"
        searching += f" from {arguments.policy}" if arguments.policy else ""
        searching += f" lto {arguments.lto}" if arguments.lto else ""
        searching += f" decide {','.join(kinds)}"
        searching += f" spare {','.join(sorted(arguments.spare))}" if arguments.spare else ""
        start, running = keeper.start, farm.running
        tools = Tools(compiling, ranking, progress, arguments.budget, start, running, searching, sharing, policy, kinds)
        tools = replace(tools, spared=arguments.spare, gains=Gains(late=arguments.lto == "full"))
        tunings = [ModuleTuning(module, tools) for module in chosen]
        until = None if arguments.minutes is None else monotonic() + 60 * arguments.minutes
        with Telling(tunings, ending, json=arguments.json) as telling:
            status = _run(telling, keeper, Autotuner(tunings, farm.slots, running, until))
            if linker:
                objects = Objects.of(work / "objects", compiling, running)
                telling.linked(link(tunings, Programs(programs, linker, running), objects, keeper, farm.slots))
            if at_link is not None:
                telling.linked(confirm(at_link, tunings, compiling, keeper, work / "trial.db"))
        return status


def _check(arguments: argparse.Namespace) -> None:
    """Say what is wrong before a build."""
    if bool(arguments.build) == bool(arguments.corpus):
        raise InvalidError("give one of two: --corpus DIR, or behind -- the command of a build")
    if arguments.corpus and arguments.level != "own":
        raise InvalidError("--level is for a build; the modules of a corpus have their own levels")
    if arguments.lto and arguments.linked:
        raise InvalidError("--lto tunes programs already: leave out --linked")
    check_speed(arguments)
    if arguments.compiler:
        _tool(arguments, compiler_of(arguments))
    with suppress(NotFoundError):
        read_store(arguments.store)


def _compiler(arguments: argparse.Namespace, commands: Sequence[BuildCommand], compilers: BuildCompilers) -> Compiler:
    """Give the compiler that is asked for, or that of the build: a store applies to the compiler of its search."""
    if arguments.build and not +compilers.sources:
        raise NotFoundError(why_nothing(commands))
    if arguments.level == "own" and not compilers.is_optimised:
        raise PreconditionError(
            "the build does not optimise (-O0), so there is nothing to decide: build at -Oz or -O2, or give --level Oz"
        )
    if arguments.compiler or arguments.corpus:
        return compiler_of(arguments)
    chosen = compilers.chosen()
    for other in compilers.clangs[1:]:
        sys.stderr.write(f"policybridge autotune: the build uses {other.name}, too, which is not tuned\n")
    return chosen


def _tool(arguments: argparse.Namespace, compiler: Compiler) -> CompileTool:
    """Find the compiler's plugin, if it loads one."""
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
    front_end = FrontEnd(tool.compiler, level, lines=False, limits=tool.limits)
    return converted(commands, front_end, work / "corpus", arguments.jobs or os.cpu_count() or 1)


def _at_link_time(
    corpus: Corpus, arguments: argparse.Namespace, tool: CompileTool, farm: Farm, work: Path
) -> Sequence[AtLinkTime]:
    """Prepare the programs; tell which cannot be linked."""
    preparing = Preparing(work.absolute() / "lto", tool.compiler, arguments.lto, tool.limits, farm.running)
    found = link_time_of(selected(corpus, Selection.of(arguments)), preparing, farm.slots)
    tell_untuned(found.failures)
    return found.programs


def _chosen(corpus: Corpus, arguments: argparse.Namespace) -> Sequence[Module]:
    if not corpus.modules:
        raise NotFoundError(f"there is nothing to tune: {corpus.folder} has no modules")
    return selected(corpus, Selection.of(arguments)).modules


def _run(telling: Telling, keeper: StoreKeeper, autotuner: Autotuner) -> int:
    def stepped(tuning: ModuleTuning) -> None:
        search = tuning.search()
        # The store's earlier decisions stay until they were compiled.
        if search is not None and search.start is None:
            keeper.put(tuning.module, search)
        telling.stepped(tuning, search)

    try:
        autotuner.run(stepped)
    finally:
        telling.searched()
        keeper.write()
    return int(not telling.compiled)


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


def _kinds(text: str) -> tuple[str, ...]:
    wanted = text.split(",")
    if unknown := [each for each in wanted if each not in KINDS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no kind of decisions: give {' or '.join(KINDS)}, or both")
    return tuple(kind for kind in KINDS if kind in wanted)


def _minutes(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no time: give minutes, more than 0")
    return number

"""``policybridge autotune``: a smaller program from a build or a corpus, and a store that keeps it so."""

import argparse
import fcntl
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic

from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_server.repository import BUNDLED
from policybridge_train.command_line import count, ended_by_signals
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.job import Limits
from policybridge_train.compiling.linker import Linker
from policybridge_train.compiling.module import Module
from policybridge_train.corpus.bitcode import FrontEnd
from policybridge_train.corpus.description import Corpus, programs_of
from policybridge_train.corpus.options import newest_compiler
from policybridge_train.farms.contract import Farm
from policybridge_train.farms.options import add_farm, farm_of
from policybridge_train.processes.pool import Running
from policybridge_train.tasks.inline import InlineForSize
from policybridge_train.tasks.recipe import TaskRecipe
from policybridge_train.tuning.autotuner import Autotuner
from policybridge_train.tuning.building import recorded
from policybridge_train.tuning.linked import Objects, Programs, link
from policybridge_train.tuning.measuring import Measurer, PluginMeasurer
from policybridge_train.tuning.measuring_job import FarmMeasurer, find_measurer
from policybridge_train.tuning.module import ModuleTuning, Tools
from policybridge_train.tuning.progress import Progress
from policybridge_train.tuning.ranking import Ranking
from policybridge_train.tuning.sharing import Sharing
from policybridge_train.tuning.starting import PolicyStart
from policybridge_train.tuning.storing import StoreKeeper
from policybridge_train.tuning.telling import Telling

_INTERRUPTED = 130
_USAGE = 2
_MOST_SECONDS = 1e6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.usage = "policybridge autotune --store FILE [options] (--corpus DIR | -- BUILD COMMAND…)"
    add = parser.add_argument
    add("--store", required=True, type=Path, metavar="FILE", help="the tuned decisions; a file to ship with the code")
    add("--corpus", type=Path, metavar="DIR", help="tune the modules of a corpus, instead of a build's")
    add(
        "--from",
        dest="policy",
        metavar="POLICY",
        help="begin with what a policy decides: NAME, NAME@VERSION; by plugin",
    )
    add("--repository", type=Path, metavar="DIR", help="the folder of this policy (default: the bundled ones)")
    add("--only", default="", metavar="TEXT", help="only modules with TEXT in their names")
    add("--budget", type=count, default=16, metavar="N", help="compiles of each module (default: %(default)s)")
    add("--minutes", type=_minutes, metavar="M", help="end after this time; a later run goes on (default: the budget)")
    add("--compiler", metavar="CLANG", help="default: the newest clang that is found")
    add("--level", choices=("Oz", "Os", "O2", "O3", "own"), default="own", help="default: the build's own")
    add("--plugins", type=Path, metavar="DIR", help="where policybridge-inliner-MAJOR.so is; or POLICYBRIDGE_PLUGINS")
    add_farm(parser)
    add("--seconds", type=_seconds, default=Limits().seconds, metavar="S", help="for one (default: %(default)g)")
    add("--memory", type=count, default=Limits().memory >> 20, metavar="MB", help="for one (default: %(default)s)")
    add("--linked", action="store_true", help="make programs smaller, with what their modules share counted once")
    add("build", nargs="*", metavar="-- COMMAND", help="the build: make -j8")


def run(arguments: argparse.Namespace) -> int:
    """Tune. The exit status is 0; 1 if no module compiled, 2 for what cannot be done, 130 after an interrupt."""
    try:
        with ended_by_signals():
            return _tune(arguments)
    except (PolicyBridgeError, OSError) as error:
        sys.stderr.write(f"policybridge autotune: {error}\n")
        return _USAGE
    except KeyboardInterrupt:
        sys.stderr.write("policybridge autotune: interrupted; the best so far is in the store\n")
        return _INTERRUPTED


def _tune(arguments: argparse.Namespace) -> int:
    if bool(arguments.build) == bool(arguments.corpus):
        raise InvalidError("give one of two: --corpus DIR, or behind -- the command of a build")
    if arguments.corpus and arguments.level != "own":
        raise InvalidError("--level is for a build; the modules of a corpus have their own levels")
    compiler = Compiler.find(arguments.compiler) if arguments.compiler else newest_compiler()
    version = compiler.version
    linker = Linker.find() if arguments.linked else None
    limits = Limits(arguments.seconds, arguments.memory << 20)
    local = find_measurer(compiler, arguments.plugins, limits, Running())
    keeper = StoreKeeper(arguments.store, compiler.major, local.by, None if arguments.corpus else Path.cwd())
    with ExitStack() as held:
        work = held.enter_context(_work_folder(arguments.store))
        farm = held.enter_context(farm_of(arguments))
        measurer = FarmMeasurer.of(local, compiler, limits, farm)
        progress = held.enter_context(Progress(work / "progress.db"))
        corpus = Corpus.open(arguments.corpus) if arguments.corpus else _recorded(arguments, compiler, limits, work)
        keeper.expect(corpus.modules)
        ranking = Ranking()
        ranking.add(progress.labels())
        programs = programs_of(corpus)
        sharing = Sharing(programs) if linker else None
        policy = held.enter_context(_policy_start(arguments, compiler, local, farm)).of if arguments.policy else None
        searching = f"{version} by {measurer.by}{' linked' * arguments.linked}"
        searching += f" from {arguments.policy}" if arguments.policy else ""
        start, running = keeper.start, farm.running
        tools = Tools(measurer, ranking, progress, arguments.budget, start, running, searching, sharing, policy)
        tunings = [ModuleTuning(module, tools) for module in _chosen(corpus, arguments.only)]
        until = None if arguments.minutes is None else monotonic() + 60 * arguments.minutes
        status = _run(tunings, keeper, Autotuner(tunings, farm.slots, running, until))
        if linker:
            objects = Objects.of(work / "objects", measurer, running)
            link(tunings, Programs(programs, linker, running), objects, keeper, farm.slots)
        return status


def _policy_start(arguments: argparse.Namespace, compiler: Compiler, measurer: Measurer, farm: Farm) -> PolicyStart:
    if not isinstance(measurer, PluginMeasurer):
        raise PreconditionError(
            f"--from needs the plugin policybridge-inliner-{compiler.major}.so: it tells where a policy decided what"
        )
    options = {
        "compiler": compiler.start[0],
        "plugins": str(measurer.plugin.parent),
        "seconds": f"{arguments.seconds:g}",
        "memory": str(arguments.memory),
    }
    task = InlineForSize(**options)
    recipe = TaskRecipe.of(task, task.name, options, None)
    return PolicyStart(task, recipe, farm, arguments.repository or BUNDLED, arguments.policy)


def _recorded(arguments: argparse.Namespace, compiler: Compiler, limits: Limits, work: Path) -> Corpus:
    level = None if arguments.level == "own" else arguments.level
    front_end = FrontEnd(compiler, level, lines=False, limits=limits)
    return recorded(arguments.build, front_end, work / "corpus", arguments.jobs or os.cpu_count() or 1)


def _chosen(corpus: Corpus, only: str) -> list[Module]:
    modules = [module for module in corpus.modules if only in module.name]
    if not modules and only:
        raise NotFoundError(f"no module has {only!r} in its name; {corpus.folder} has {len(corpus.modules)} modules")
    if not modules:
        raise NotFoundError(f"there is nothing to tune: {corpus.folder} has no modules")
    return modules


def _run(tunings: Sequence[ModuleTuning], keeper: StoreKeeper, autotuner: Autotuner) -> int:
    with Telling(tunings) as telling:

        def stepped(tuning: ModuleTuning) -> None:
            search = tuning.search()
            # What a store has had stands until it was compiled.
            if search is not None and not search.start:
                keeper.put(tuning.module, search)
            telling.stepped(tuning, search)

        try:
            autotuner.run(stepped)
        finally:
            keeper.write()
        return int(not telling.compiled)


@contextmanager
def _work_folder(store: Path) -> Iterator[Path]:
    """Give the folder of what a search remembers, and keep all others out of it, as long as the block lasts."""
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


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is no time for a compiler: give seconds, more than 0")
    return number


def _minutes(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no time: give minutes, more than 0")
    return number

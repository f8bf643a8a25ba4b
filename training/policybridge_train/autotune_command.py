"""``policybridge autotune``: a smaller program from a build or a corpus, and a store that keeps it so."""

import argparse
import math
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic

from policybridge_client.decisions import read_store
from policybridge_client.decisions.finding import NAME
from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_train.autotune_work import AutotuneWork, tool_of
from policybridge_train.command_line import count, status_of
from policybridge_train.compiling.compiler import CompileTool
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
)
from policybridge_train.corpus.description import Corpus, programs_of
from policybridge_train.corpus.link_time import AtLinkTime, Preparing, link_time_of
from policybridge_train.corpus.selecting import selected
from policybridge_train.farms.contract import Farm
from policybridge_train.farms.options import add_farm
from policybridge_train.speed.tuning import SpeedTuning, add_speed, asked_of, check_speed
from policybridge_train.tuning.autotuner import Autotuner
from policybridge_train.tuning.building import tell_untuned
from policybridge_train.tuning.confirming import confirm
from policybridge_train.tuning.linked import Objects, Programs, link
from policybridge_train.tuning.module import ModuleTuning
from policybridge_train.tuning.sharing import Sharing
from policybridge_train.tuning.storing import StoreKeeper
from policybridge_train.tuning.telling import Telling
from policybridge_train.tuning.tools import KINDS


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
        work = AutotuneWork.prepared(arguments, held)
        return _faster(work) if arguments.objective == "cycles" else _smaller(work, linker, held)


def _faster(work: AutotuneWork) -> int:
    work.keeper.expect(work.corpus.modules)
    modules, farm = selected(work.corpus, Selection.of(work.arguments)), work.farm
    faster = SpeedTuning(
        work.commands, modules, work.names, work.compiling, farm.running, farm.slots, work.keeper, work.folder
    )
    return faster.run(work.arguments, asked_of(work.arguments, work.kinds), work.tool.limits, work.ending)


def _smaller(work: AutotuneWork, linker: Linker | None, held: ExitStack) -> int:
    arguments, farm, keeper, compiling = work.arguments, work.farm, work.keeper, work.compiling
    at_link = _at_link_time(work.corpus, arguments, work.tool, farm, work.folder) if arguments.lto else None
    chosen = _chosen(work.corpus, arguments) if at_link is None else [part for each in at_link for part in each.parts]
    keeper.expect(work.corpus.modules if at_link is None else chosen)
    programs = programs_of(work.corpus)
    tools = work.tools(Sharing(programs) if linker else None, held)
    tunings = [ModuleTuning(module, tools) for module in chosen]
    until = None if arguments.minutes is None else monotonic() + 60 * arguments.minutes
    with Telling(tunings, work.ending, json=arguments.json) as telling:
        status = _run(telling, keeper, Autotuner(tunings, farm.slots, farm.running, until))
        if linker:
            objects = Objects.of(work.folder / "objects", compiling, farm.running)
            telling.linked(link(tunings, Programs(programs, linker, farm.running), objects, keeper, farm.slots))
        if at_link is not None:
            telling.linked(confirm(at_link, tunings, compiling, keeper, work.folder / "trial.db"))
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
        tool_of(arguments, compiler_of(arguments))
    with suppress(NotFoundError):
        read_store(arguments.store)


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

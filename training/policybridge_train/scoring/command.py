"""``policybridge score``: policies, stores and flags against LLVM's own decisions, over a corpus."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from policybridge_client.llvm.config import GROWTH_LIMIT
from policybridge_client.llvm.signals import Interrupted, TakenSignals
from policybridge_client.llvm.tasks import INLINE, TASKS
from policybridge_core.errors import InvalidError, PolicyBridgeError, PreconditionError
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.job import Limits
from policybridge_train.corpus.description import Corpus, programs_of
from policybridge_train.corpus.parts import Part, part_of
from policybridge_train.farms.contract import Farm
from policybridge_train.farms.given import GivenServer
from policybridge_train.farms.options import add_farm, farm_of
from policybridge_train.scoring.cache import Cache, default_folder
from policybridge_train.scoring.contenders import Settings, absolute_server, parse_contender
from policybridge_train.scoring.repeating import Repeating
from policybridge_train.scoring.results import Scores
from policybridge_train.scoring.run import Advance, Plan, score
from policybridge_train.scoring.table import print_scores

_NOTHING: Final = 1
_USAGE: Final = 2

_DESCRIPTION: Final = """
Compiles every module of a corpus under a baseline and under each candidate, links the programs, and tells what changed.
A contender is 'default' (LLVM as it is), a policy NAME[@VERSION|@ALIAS] of a server, the file of a store, or flags:
flag:-mllvm,-inline-threshold=15. What fails is a row. Exit status: 0; 1 where nothing could be compared; 2 for a wrong
command line; 128 + n where signal n ended it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.description = _DESCRIPTION
    add = parser.add_argument
    add("--corpus", required=True, type=Path, metavar="DIR", help="the folder of the corpus")
    add("--baseline", default="default", metavar="CONTENDER", help="what is compared to (default: default)")
    add("--candidate", action="append", required=True, metavar="CONTENDER", help="what is compared; repeatable")
    add("--compiler", action="append", metavar="NAME", help="clang-22 (default), zig, a path; repeatable")
    add("--server", metavar="ADDRESS", help="the server that has the policies: socket:PATH, grpc:HOST:PORT, …")
    add("--task", default=INLINE.name, choices=TASKS, metavar="TASK", help="the task: %(choices)s (default: inline)")
    add("--plugins", type=Path, metavar="DIR", help="where the plugins are (default: as for policybridge run)")
    add("--interactive", action="store_true", help="use LLVM's interactive mode, not the plugin")
    add("--growth-limit", type=float, default=GROWTH_LIMIT, metavar="FACTOR", help="as for policybridge run")
    add("--module", action="append", metavar="PATTERN", help="only modules with such names, and no program; repeatable")
    add("--program", action="append", metavar="PATTERN", help="only programs with such PROJECT/NAME, and their modules")
    add(
        "--part",
        choices=[part.value for part in Part],
        help="only projects of this part (docs/training.md): %(choices)s",
    )
    add_farm(parser)
    add(
        "--timeout", type=_positive, default=Limits.seconds, metavar="SECONDS", help="of each compilation (%(default)g)"
    )
    add("--memory", type=_positive, default=Limits.memory / 2**30, metavar="GIB", help="of each (default: %(default)g)")
    add(
        "--cache", type=Path, default=default_folder(), metavar="DIR", help="keeps plain objects (default: %(default)s)"
    )
    add("--no-cache", action="store_true", help="compile all, and keep nothing")
    add("--html", type=Path, metavar="FILE", help="write a page with plots")
    add("--json", type=Path, metavar="FILE", help="write all rows")


def run(arguments: argparse.Namespace) -> int:
    """Score; return the exit status."""
    try:
        _check_files(arguments.html, arguments.json)
        with TakenSignals():
            with farm_of(arguments) as farm:
                plan = _plan(arguments, farm)
                if arguments.server is not None:
                    farm.lead(GivenServer(absolute_server(arguments.server)))
                with _progress(plan) as advance:
                    scores = score(plan, advance)
            print_scores(scores, Console())
            _write(arguments, scores)
    except Interrupted as signal:
        return 128 + signal.number
    except (PolicyBridgeError, OSError) as error:
        sys.stderr.write(f"policybridge score: {error}\n")
        return _USAGE
    return 0 if any(comparison.scored for comparison in scores.comparisons) else _NOTHING


def _check_files(*files: Path | None) -> None:
    """Refuse a file that cannot be written, before hours of compiling are lost for it."""
    for file in files:
        if file is not None and (file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK)):
            raise PreconditionError(f"{file} cannot be written: name a file in a folder that is there")


def _plan(arguments: argparse.Namespace, farm: Farm) -> Plan:
    plugins = arguments.plugins.absolute() if arguments.plugins else None
    settings = Settings(arguments.server, arguments.task, plugins, arguments.interactive, arguments.growth_limit)
    baseline = parse_contender(arguments.baseline, settings)
    texts = list(dict.fromkeys(arguments.candidate))
    repeated = [*_repeated(arguments, plugins), "--baseline", baseline.argument]
    return Plan(
        corpus=_corpus(arguments),
        compilers=[Compiler.find(name) for name in dict.fromkeys(arguments.compiler or ["clang-22"])],
        baseline=baseline,
        candidates=[parse_contender(text, settings) for text in texts],
        repeating=Repeating(tuple(repeated)),
        task=arguments.task,
        limits=Limits(arguments.timeout, int(arguments.memory * 2**30)),
        farm=farm,
        cache=None if arguments.no_cache else Cache(arguments.cache),
        spills=arguments.task != INLINE.name,
    )


def _repeated(arguments: argparse.Namespace, plugins: Path | None) -> Iterator[str]:
    """Give the words that repeat the command in any folder, but for contenders, compilers and patterns."""
    yield from ("--corpus", str(arguments.corpus.resolve()), "--task", arguments.task)
    if arguments.server is not None:
        yield from ("--server", absolute_server(arguments.server))
    if plugins is not None:
        yield from ("--plugins", str(plugins))
    if arguments.interactive:
        yield "--interactive"
    yield from ("--growth-limit", f"{arguments.growth_limit:g}")


def _corpus(arguments: argparse.Namespace) -> Corpus:
    whole = Corpus.open(arguments.corpus.resolve())
    programs = [
        each
        for each in programs_of(whole)
        if _matches(f"{each.project}/{each.name}", arguments.program) and _is_of(each.project, arguments.part)
    ]
    linked = {name for program in programs for name in program.modules}
    modules = [
        module
        for module in whole.modules
        if _matches(module.name, arguments.module)
        and _is_of(module.project, arguments.part)
        and (arguments.program is None or module.name in linked)
    ]
    if not modules:
        raise InvalidError(f"no module of {whole.folder} is asked for by these patterns, or in this part")
    # A program of which only some modules are asked for would be another program.
    return Corpus(whole.folder, modules, programs if arguments.module is None else (), whole.failures)


def _is_of(project: str, part: str | None) -> bool:
    return part is None or part_of(project).value == part


def _matches(name: str, patterns: Sequence[str] | None) -> bool:
    return patterns is None or any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


@contextmanager
def _progress(plan: Plan) -> Iterator[Advance]:
    """Show on a terminal how many modules are compiled and how many programs are linked."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        compilers = len(plan.compilers)
        tasks = {
            "compiled": bar.add_task("compiled", total=compilers * len(plan.corpus.modules)),
            "linked": bar.add_task("linked", total=compilers * len(plan.candidates) * len(plan.corpus.programs)),
        }
        yield lambda what: bar.advance(tasks[what])


def _write(arguments: argparse.Namespace, scores: Scores) -> None:
    if arguments.json:
        # json and not msgspec, because names of files may have bytes that are no UTF-8.
        arguments.json.write_text(json.dumps(msgspec.to_builtins(scores), indent=1) + "\n", encoding="ascii")
    if arguments.html:
        from policybridge_train.scoring.page import write_page  # noqa: PLC0415 - plotly takes half a second to import

        write_page(scores, arguments.html)


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return value

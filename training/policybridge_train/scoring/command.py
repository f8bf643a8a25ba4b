"""``policybridge score``: policies, stores and flags against LLVM's own decisions, over a corpus."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from policybridge_client.llvm.bounds import GROWTH_LIMIT
from policybridge_client.llvm.signals import Interrupted, TakenSignals
from policybridge_client.llvm.task_table import TASKS
from policybridge_client.llvm.tasks import INLINE
from policybridge_core.errors import InvalidError, PolicyBridgeError, PreconditionError
from policybridge_train.compiling.compiler import Compiler, CompileTool, newest_compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.options import (
    Selection,
    add_compiler,
    add_limits,
    add_lto,
    add_plugins,
    add_selection,
    limits_of,
)
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.link_time import Preparing, check_link_time, link_time_of
from policybridge_train.corpus.parts import Part
from policybridge_train.corpus.selecting import selected
from policybridge_train.corpus.splitting import Split
from policybridge_train.farms.contract import Farm
from policybridge_train.farms.given import GivenServer
from policybridge_train.farms.options import add_farm, farm_of
from policybridge_train.scoring.cache import Cache, default_folder
from policybridge_train.scoring.contenders import Settings, absolute_server, parse_contender
from policybridge_train.scoring.repeating import Repeating
from policybridge_train.scoring.results import Scores, as_builtins
from policybridge_train.scoring.run import Advance, Plan, score
from policybridge_train.scoring.table import print_scores

_NOTHING: Final = 1
_USAGE: Final = 2

_DESCRIPTION: Final = """
Compiles every module of a corpus under each baseline and each candidate, links the programs, and prints the changes.
A contender is 'default' (LLVM as it is), a policy NAME[@VERSION|@ALIAS] of a server, the file of a store, or flags:
flag:-mllvm,-inline-threshold=15. What fails is a row.
"""

_EPILOG: Final = """
Exit status: 0, also if rows failed; 1 if nothing could be compared; 2 for a wrong command line; 128 + n after signal n.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--corpus", required=True, type=Path, metavar="DIR", help="the folder of the corpus")
    add(
        "--baseline",
        action="append",
        metavar="CONTENDER",
        help="what to compare with; repeatable (default: default)",
    )
    add("--candidate", action="append", required=True, metavar="CONTENDER", help="the contender to score; repeatable")
    add_compiler(parser, several=True)
    add("--server", metavar="ADDRESS", help="the server that has the policies: socket:PATH, grpc:HOST:PORT, …")
    add("--task", default=INLINE.name, choices=TASKS, metavar="TASK", help="the task: %(choices)s (default: inline)")
    add_plugins(parser)
    add("--interactive", action="store_true", help="use LLVM's interactive mode, not the plugin")
    add("--growth-limit", type=float, default=GROWTH_LIMIT, metavar="FACTOR", help="as for policybridge run")
    add_selection(parser)
    add_lto(parser)
    add(
        "--part",
        choices=[part.value for part in Part],
        help="only projects of this part (docs/training.md): %(choices)s",
    )
    add("--split", type=Path, metavar="FILE", help="the parts of modules, not of projects: lines 'PART PATTERN'")
    add_farm(parser)
    add_limits(parser, Limits())
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
            with farm_of(arguments) as farm, TemporaryDirectory(prefix="policybridge-lto-") as folder:
                plan = _plan(arguments, farm)
                if arguments.lto:
                    plan = _linking(plan, arguments, Path(folder) if arguments.no_cache else arguments.cache / "lto")
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
    settings = Settings(arguments.server, arguments.task, arguments.growth_limit)
    baselines, candidates = (
        [parse_contender(text, settings, farm) for text in dict.fromkeys(texts)]
        for texts in (arguments.baseline or ["default"], arguments.candidate)
    )
    names = dict.fromkeys(arguments.compiler or ())
    found = [Compiler.find(name) for name in names] or [newest_compiler()]
    return Plan(
        corpus=_corpus(arguments),
        tools=[CompileTool(each, limits_of(arguments), farm.running, plugins, arguments.interactive) for each in found],
        baselines=baselines,
        candidates=candidates,
        repeating=Repeating(tuple(_repeated(arguments, plugins))),
        task=arguments.task,
        farm=farm,
        cache=None if arguments.no_cache else Cache(arguments.cache),
        objectives=("text", "exec") if arguments.task == INLINE.name else ("text", "exec", "spills"),
    )


def _linking(plan: Plan, arguments: argparse.Namespace, folder: Path) -> Plan:
    """Give the plan with the programs that LTO optimises in place of modules.

    Raises:
        InvalidError: an option does not go with ``--lto``.
        PolicyBridgeError: see `check_link_time` and `link_time_of`.

    """
    if arguments.task != INLINE.name or len(plan.tools) > 1:
        raise InvalidError(f"--lto is for --task {INLINE.name} and one --compiler")
    tool, farm = plan.tools[0], plan.farm
    check_link_time(tool, farm, Selection.of(arguments))
    preparing = Preparing(folder.absolute(), tool.compiler, arguments.lto, tool.limits, farm.running)
    found = link_time_of(plan.corpus, preparing, farm.slots)
    corpus = plan.corpus
    failures = {**corpus.failures, **found.failures}
    return replace(plan, corpus=Corpus(corpus.folder, [each.whole for each in found.programs], (), failures))


def _repeated(arguments: argparse.Namespace, plugins: Path | None) -> Iterator[str]:
    """Give the words that repeat the command in any folder, but for contenders, compilers and patterns."""
    yield from ("--corpus", str(arguments.corpus.resolve()), "--task", arguments.task)
    if arguments.server is not None:
        yield from ("--server", absolute_server(arguments.server))
    if plugins is not None:
        yield from ("--plugins", str(plugins))
    if arguments.interactive:
        yield "--interactive"
    if arguments.lto:
        yield from ("--lto", arguments.lto)
    yield from ("--growth-limit", f"{arguments.growth_limit:g}")


def _corpus(arguments: argparse.Namespace) -> Corpus:
    part = None if arguments.part is None else Part(arguments.part)
    split = None if arguments.split is None else Split.read(arguments.split)
    if split is not None and part is None:
        raise InvalidError("--split tells the parts, and --part which of them to score: give both")
    return selected(Corpus.open(arguments.corpus.resolve()), Selection.of(arguments), part, split)


@contextmanager
def _progress(plan: Plan) -> Iterator[Advance]:
    """Show on a terminal how many modules are compiled and how many programs are linked."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        compilers, pairs = len(plan.tools), len(plan.baselines) * len(plan.candidates)
        tasks = {
            "compiled": bar.add_task("compiled", total=compilers * len(plan.corpus.modules)),
            "linked": bar.add_task("linked", total=compilers * pairs * len(plan.corpus.programs)),
        }
        yield lambda what: bar.advance(tasks[what])


def _write(arguments: argparse.Namespace, scores: Scores) -> None:
    if arguments.json:
        # json and not msgspec, because names of files may have bytes that are no UTF-8.
        arguments.json.write_text(json.dumps(as_builtins(scores), indent=1) + "\n", encoding="ascii")
    if arguments.html:
        from policybridge_train.scoring.page import write_page  # noqa: PLC0415 - plotly takes half a second to import

        write_page(scores, arguments.html)

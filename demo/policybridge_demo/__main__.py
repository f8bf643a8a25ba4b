"""``python -m policybridge_demo``: compile real code with the decisions of a policy, and show the results."""

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from rich.console import Console

from policybridge_client.llvm.config import HostConfig
from policybridge_core.errors import PolicyBridgeError
from policybridge_demo.compilation import CompileError, compile_asking, compile_plain
from policybridge_demo.compilers import COMPILERS
from policybridge_demo.corpus import CorpusError, Module, check_sources, demo_modules
from policybridge_demo.export.formats import FORMATS, ExportError
from policybridge_demo.inliner import IMITATION, INLINER, exported_server
from policybridge_demo.report import print_result, progress
from policybridge_demo.result import DemoResult, Pair
from policybridge_demo.server import ServerError, demo_server
from policybridge_demo.tuning import is_tuned, tune
from policybridge_demo.workers import for_each
from policybridge_serdes import PolicyReference
from policybridge_train.command_line import count

_T = TypeVar("_T")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit status is 0 if every module compiled and the policy made every decision."""
    options = _options(arguments)
    console = Console()
    # Raise KeyboardInterrupt at SIGTERM too, so that the server is stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = _run(options, console)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (CompileError, CorpusError, ExportError, PolicyBridgeError, ServerError) as error:
        return _fail(str(error))
    print_result(result, console)
    if options.json:
        options.json.write_text(json.dumps(result.to_json(), indent=2) + "\n", encoding="utf-8")
    if result.fallbacks:
        return _fail(f"LLVM decided without the policy: {result.fallbacks[0]}")
    return _tuned(options, console)


def _tuned(options: argparse.Namespace, console: Console) -> int:
    """Tune, if wanted; the demo has succeeded, so an error here is printed and changes no status."""
    modules = [module for module in demo_modules() if options.only in module.path and is_tuned(module)]
    if not options.tune or not modules:
        return 0
    try:
        tune(modules, options.compiler, options.tune, options.jobs, console)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (CompileError, PolicyBridgeError, OSError) as error:
        sys.stderr.write(f"policybridge_demo: the tuning failed: {error}\n")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.policy is None:
        options.policy = IMITATION if options.backend else INLINER
    if options.backend and (options.server or options.policy != IMITATION):
        parser.error(f"--backend is for the policy {IMITATION} in the demo's own server")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m policybridge_demo", description=__doc__)
    parser.add_argument("--server", metavar="ADDR", help="a running server; by default the demo starts one")
    parser.add_argument("--policy", metavar="NAME[@VERSION]", help="the policy (default: inliner)")
    parser.add_argument("--backend", choices=list(FORMATS), help="export inliner-imitation to it first")
    parser.add_argument("--compiler", choices=list(COMPILERS), default="zig", help="default: zig, clang 22 from PyPI")
    parser.add_argument("--only", default="", metavar="TEXT", help="only modules with TEXT in their paths")
    parser.add_argument("--jobs", type=count, default=os.cpu_count() or 1, metavar="N", help="compilers at a time")
    parser.add_argument("--tune", type=_seconds, default=60, metavar="S", help="seconds of tuning at the end; 0: none")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    return parser


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number


def _run(options: argparse.Namespace, console: Console) -> DemoResult:
    modules = [module for module in demo_modules() if options.only in module.path]
    if not modules:
        raise CorpusError(f"no module of the demo has {options.only!r} in its path")
    check_sources(modules)
    with _server(options) as server:
        config = HostConfig(PolicyReference.parse(options.policy), server)
        run_all = partial(_run_all, modules, options.jobs, console)
        plain, plain_seconds = run_all(partial(compile_plain, options.compiler), "plain -Oz")
        asking, seconds = run_all(partial(compile_asking, options.compiler, config), f"asking {options.policy}")
    pairs = [Pair(built, *asked) for built, asked in zip(plain, asking, strict=True)]
    return DemoResult(options.policy, options.backend, options.compiler, options.jobs, pairs, plain_seconds, seconds)


def _server(options: argparse.Namespace) -> AbstractContextManager[str]:
    if options.server:
        return nullcontext(options.server)
    return exported_server(options.backend) if options.backend else demo_server()


def _run_all(
    modules: Sequence[Module], jobs: int, console: Console, job: Callable[[Module], _T], what: str
) -> tuple[list[_T], float]:
    """Run ``job`` for ``modules``; return the results in the order of ``modules``, and the wall time in seconds."""
    begun = perf_counter()
    results = list(progress(for_each(job, modules, jobs), what, len(modules), console))
    seconds = perf_counter() - begun
    return [result for _, result in sorted(results, key=itemgetter(0))], seconds


def _fail(reason: str) -> int:
    sys.stderr.write(f"policybridge_demo: {reason}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""Compile by `policybridge-run`, by `policybridge run`, and by the bare compiler."""

import argparse
import json
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from policybridge_bench.contenders.own import serve_command
from policybridge_bench.loads import Candidate
from policybridge_bench.measuring import conduct, finish
from policybridge_bench.options import fill
from policybridge_bench.processes import run_tool, server
from policybridge_bench.ratios import difference, find
from policybridge_bench.results import Case, Measured, Round, timed
from policybridge_core.errors import InvalidError

_BARE: Final = "compiler"
_NATIVE, _PYTHON = "policybridge-run", "policybridge run"
_FUNCTIONS: Final = 100
_WARM_UP: Final = 3
_OPTIONS: Final = {
    "asks-nothing": ["-Oz", "-c", "quiet.c", "-o", "made.o"],
    "asks-often": ["-Oz", "-c", "asking.c", "-o", "made.o"],
    "compiles-nothing": ["-fsyntax-only", "quiet.c"],
}
"""The compiler's options for each way; they separate the start of the host from decisions."""


def run(arguments: argparse.Namespace) -> int:
    """Run each command once in every round; a latency is that of a whole compilation.

    The client's CPU is that of the compiler and its host. The figures are differences to the bare compiler.
    """
    if arguments.launcher is None:
        raise InvalidError("launcher needs --launcher, the path of the program policybridge-run")
    fill(arguments, rounds=50, baseline=_BARE)
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        write_modules(folder)
        serve, env = serve_command(arguments.python)
        listen = ["--demo", "--grpc", "127.0.0.1:0", "--socket", str(folder / "policy.sock")]
        with server([*serve, *listen, *arguments.serve_option], env=env) as started:
            commands = _commands(arguments, started.addresses[-1])
            decisions = {way: _decisions(commands[_NATIVE, way], folder) for way in _OPTIONS}
            measured = conduct(arguments, list(_candidates(commands, folder)))
    return finish(measured, arguments, _figures(measured.cases, decisions))


def write_modules(folder: Path) -> None:
    """Write a module without decisions, and one with many."""
    (folder / "quiet.c").write_text("int quiet(int x) { return x + 1; }\n")
    lines = ["int sink(int);"]
    for n in range(_FUNCTIONS):
        body = f"int s = {n}; for (int i = 0; i < x; i++) s += sink(s) ^ i; return s;"
        lines.append(f"static int middle{n}(int x) {{ {body} }}")
        lines.append(f"int outer{n}(int x) {{ return middle{n}(x) + middle{n}(x + 1); }}")
    (folder / "asking.c").write_text("\n".join(lines) + "\n")


def _commands(arguments: argparse.Namespace, address: str) -> Mapping[tuple[str, str], list[str]]:
    """Give the command of each host, or of the compiler alone, for each way."""
    asking = ["--policy", "inlining-default", "--server", address, "--fallback", "error", "--"]
    hosts: dict[str, list[str]] = {
        _BARE: [],
        _NATIVE: [str(arguments.launcher.resolve()), *asking],
        _PYTHON: [sys.executable, "-m", "policybridge_client.cli", "run", *asking],
    }
    return {
        (host, way): [*start, arguments.compiler, *options]
        for way, options in _OPTIONS.items()
        for host, start in hosts.items()
    }


def _candidates(commands: Mapping[tuple[str, str], list[str]], folder: Path) -> Iterator[Candidate]:
    for (host, way), command in commands.items():
        compile_once = partial(run_tool, command, folder)
        for _ in range(_WARM_UP):
            compile_once()
        case = Case(contender=host, way=way, generator="compiler", clients=1, payload="")
        yield Candidate(case, partial(_measure, compile_once))


def _measure(compile_once: Callable[[], object]) -> Round:
    used = _used()
    seen = timed(compile_once)
    return msgspec.structs.replace(seen, client_cpu=(_used() - used) * 1e6)


def _used() -> float:
    """Give the CPU of all ended child processes, in seconds."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def _decisions(command: Sequence[str], folder: Path) -> int:
    """Count the decisions of a command."""
    place = command.index("--")
    run_tool([*command[:place], "--stats", "stats.json", *command[place:]], folder)
    return int(json.loads((folder / "stats.json").read_text())["decisions"])


def _figures(cases: Sequence[Measured], decisions: Mapping[str, int]) -> Iterator[tuple[str, float]]:
    used: dict[tuple[str, str], float] = {}
    for way, count in decisions.items():
        yield f"{way}: decisions", count
        (bare,) = find(cases, contender=_BARE, way=way)
        for each in find(cases, way=way):
            host = each.case.contender
            if host != _BARE:
                used[host, way] = difference(each, bare, "client_cpu")
                yield f"{way}: {host} adds, ms", difference(each, bare, "p50") / 1e3
                yield f"{way}: {host} adds, ms of CPU", used[host, way] / 1e3
    for host in (_NATIVE, _PYTHON):
        # The module with decisions minus the module without; without the server's CPU.
        more = used[host, "asks-often"] - used[host, "asks-nothing"]
        yield f"each decision: {host} adds, µs of CPU", more / decisions["asks-often"]

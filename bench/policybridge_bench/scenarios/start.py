"""Time until a server with one policy is ready, and its memory."""

import argparse
import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from policybridge_bench.contenders.own import serve_command
from policybridge_bench.loads import Candidate
from policybridge_bench.measuring import conduct, finish
from policybridge_bench.options import fill, names
from policybridge_bench.policies import backends, write_policies
from policybridge_bench.processes import Started, server, usage
from policybridge_bench.results import Case, Round, timed


def run(arguments: argparse.Namespace) -> int:
    """Start a server for each backend in every round; a latency is the time until one server is ready."""
    fill(arguments, ways="")
    with TemporaryDirectory(prefix="pb-") as folder:
        return finish(conduct(arguments, list(_candidates(arguments, Path(folder)))), arguments)


def _candidates(arguments: argparse.Namespace, folder: Path) -> Iterator[Candidate]:
    for backend in names(arguments.backends, "backend", backends()):
        repository = arguments.repository or folder / backend
        if arguments.repository is None:
            write_policies(repository, ["inliner"], [backend])
        case = Case(contender="policybridge", way="start", generator="python", clients=1, backend=backend)
        yield Candidate(case, partial(_start, arguments, repository, folder))


def _start(arguments: argparse.Namespace, repository: Path, folder: Path) -> Round:
    listen = ["--grpc", "127.0.0.1:0", "--socket", str(folder / "socket")]
    command, env = serve_command(arguments.python)
    started: list[Started] = []
    command += ["--repository", str(repository), "--allow-python", *listen, *arguments.serve_option]
    with contextlib.ExitStack() as stack:
        seen = timed(lambda: started.append(stack.enter_context(server(command, env=env))))
        used = usage(started[0].pid)
    return msgspec.structs.replace(seen, server_cpu=used.cpu * 1e6, server_rss=used.rss)

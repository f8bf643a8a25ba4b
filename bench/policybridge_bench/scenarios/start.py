"""How soon a server with one policy is ready, and how much memory it holds."""

import argparse
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec

from policybridge_bench.options import words
from policybridge_bench.policies import backends, policy_name, write_policies
from policybridge_bench.processes import Usages, server


def run(arguments: argparse.Namespace) -> int:
    """Start a server per backend, so many times."""
    rows: dict[str, dict[str, float]] = {}
    for backend in words(arguments.backends, backends()):
        with TemporaryDirectory(prefix="pb-") as folder:
            repository = arguments.repository or Path(folder) / "policies"
            if arguments.repository is None:
                write_policies(repository, ["inliner"], [backend])
            seen = [_start(arguments, repository, Path(folder)) for _ in range(arguments.rounds)]
        name = "repository" if arguments.repository else policy_name("inliner", backend)
        ready, rss = (median(one[which] for one in seen) for which in (0, 1))
        rows[name] = {"seconds": ready, "rss": rss}
        print(
            f"{name:24} ready after {ready:6.2f} s   RSS {rss / 1e6:6.1f} MB   CPU {median(s[2] for s in seen):5.2f} s"
        )
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1))
    return 0


def _start(arguments: argparse.Namespace, repository: Path, folder: Path) -> tuple[float, int, float]:
    listen = ["--grpc", "127.0.0.1:0", "--socket", str(folder / "socket")]
    command = [arguments.python, "-m", "policybridge_client.cli", "serve", "--repository", str(repository), *listen]
    started = time.perf_counter()
    with server([*command, "--allow-python", *arguments.serve_option]) as running:
        seconds = time.perf_counter() - started
        usage = Usages(running.pid).now()
        return seconds, usage.rss, usage.cpu

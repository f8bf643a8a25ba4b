"""The part that tunes programs for speed."""

import json
import subprocess
from argparse import Namespace
from pathlib import Path

from policybridge_bench.processes import module
from policybridge_docs.results.figures import Figure
from policybridge_docs.results.parts.built import geometric_mean
from policybridge_docs.results.parts.running import Made, clang


def cycles(options: Namespace) -> Made:
    """Tune programs of Debian packages for speed; count and time them on inputs that the search has not seen.

    The estimate is compared with the time of LLVM's other levels, too.

    What an earlier call has measured in ``--cycles`` is not measured again.
    """
    return _tuned(options, options.cycles, "--levels")


def profiled(options: Namespace) -> Made:
    """Do so at -O3 with a profile of the search's input, in ``--profiled``."""
    return _tuned(options, options.profiled, "--profile")


def _tuned(options: Namespace, work: Path, mode: str) -> Made:
    command = ["tests.measures.cycles", "--budget", "64", mode]
    there = module(*command, "--plugins", options.plugins, "--work", work)
    told = json.loads(subprocess.run(there, stdout=subprocess.PIPE, check=True).stdout)
    packages, signs = told["packages"], told["signs"]
    held = {name: its["tuned"]["held"] for name, its in packages.items()}
    figures = {
        "programs": Figure(len(held), "programs"),
        "stored": Figure(sum(its["stored"] for its in packages.values()), "programs"),
        "cycles": geometric_mean({name: its["cycles"] for name, its in held.items()}),
        "time": geometric_mean({name: its["time"]["factor"] for name, its in held.items()}),
        "text": geometric_mean({name: its["text"] for name, its in packages.items()}),
        "faster": Figure(sum(its["time"]["high"] < 1 for its in held.values()), "programs"),
        "slower": Figure(sum(its["time"]["low"] > 1 for its in held.values()), "programs"),
        "agreeing": Figure(signs["agreeing"], "comparisons"),
        "differing": Figure(signs["pairs"], "comparisons"),
    }
    return Made(f"python -m {' '.join(command)} --work DIR", figures, clang())

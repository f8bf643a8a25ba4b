"""Parts that try what may fail: kills, mutants, attacks, random programs, and objects that must be the same."""

import json
import shlex
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from policybridge_core.errors import PolicyFailedError
from policybridge_docs.results.figures import Figure
from policybridge_docs.results.parts.running import Made, run_module


def kills(options: Namespace) -> Made:
    """Kill servers, workers, replicas and databases, or take the totals of an earlier run, in ``--tally``."""
    words = ["kills", "--kills", "1000"]
    run_module("tests.kills", *words[1:], "--tally", options.tally)
    tally = json.loads(options.tally.read_bytes())
    figures = {kind: Figure(count) for kind, count in tally["killed"].items()}
    figures |= {name: Figure(tally[name]) for name in ("decisions", "ends", "published", "named")}
    figures |= {
        "all": Figure(sum(tally["killed"].values())),
        "jumps": Figure(sum(tally["jumps"].values()), "times"),
        "lost": Figure(len(tally["faults"])),
    }
    return Made(f"python -m tests.{shlex.join(words)}", figures)


def mutants(_: Namespace) -> Made:
    """Run the changes by hand of the server; results of earlier runs are kept."""
    words = ["mutants", "--count", "0"]
    with TemporaryDirectory() as name:
        file = Path(name) / "tally.json"
        # With status 1 too many survive; the figures say how many.
        run_module("tests.mutants", *words[1:], "--tally", file, statuses=(0, 1))
        tally = json.loads(file.read_bytes())
    if tally["not run"]:
        raise PolicyFailedError(f"{tally['not run']} mutants were not run")
    figures = {name: Figure(tally[name]) for name in ("killed", "survived", "listed")}
    return Made(f"python -m tests.{shlex.join(words)}", figures | {"all": Figure(sum(tally.values()))})


def attacks(_: Namespace) -> Made:
    """Run the attacks on the gRPC port and on every other door."""
    figures: dict[str, Figure] = {}
    with TemporaryDirectory() as name:
        ports, doors = Path(name) / "ports.json", Path(name) / "doors.json"
        # With status 1 a promise is broken; the figures say which.
        run_module("tests.attacks", "--json", ports, statuses=(0, 1))
        run_module("tests.attacks.doors", "--json", doors, statuses=(0, 1))
        for row in (*json.loads(ports.read_bytes()), *json.loads(doors.read_bytes())):
            key = "-".join([*row["attack"].split(), *([row["port"]] if row.get("port") == "grpcio" else [])])
            for what, factor, unit in (("before", 1e3, "ms"), ("longest", 1e3, "ms"), ("most", 1e-6, "MB")):
                figures[f"{key}.{what}"] = Figure(row[what] * factor, unit)
            if "given_back" in row:
                figures[f"{key}.given-back"] = Figure(row["given_back"], "s")
    return Made("make bench-attacks", figures)


def differential(options: Namespace) -> Made:
    """Compare random programs with random choices of passes, those counted in ``--compared`` included."""
    command = ["tests.native.llvm.differential", "--programs", str(options.programs)]
    places = ["--tally", options.compared, "--plugin", options.plugins.absolute() / "policybridge-inliner-22.so"]
    # With status 1 programs disagree; the figures say how many.
    run_module(command[0], *command[1:], *places, statuses=(0, 1))
    tally = json.loads(options.compared.read_bytes())
    figures = {name: Figure(tally["counts"].get(name, 0)) for name in ("programs", "modules", "compiles", "choices")}
    figures |= {
        "left-out": Figure(tally["counts"].get("too long", 0)),
        "different": Figure(len(tally["disagreements"])),
    }
    compared = f"python -m {command[0]} --programs {tally['counts'].get('programs', 0)}"
    return Made(compared, figures, tally["compiler"])


def echoes(options: Namespace) -> Made:
    """Count objects of LLVM's own decisions, or take the counts of earlier runs in ``--echoes``."""
    figures: dict[str, Figure] = {}
    for major in (22, 19):
        file = options.echoes / f"clang-{major}.json"
        if not file.exists():
            places = ["--corpus", options.echoes / f"corpus-{major}", "--plugins", options.plugins, "--json", file]
            # With status 1 an object differs; the figures say how many.
            run_module("tests.measures.echoes", "--compiler", f"clang-{major}", *places, statuses=(0, 1))
        counted = json.loads(file.read_bytes())
        figures |= {f"{major}.{what}": Figure(counted[what]) for what in ("modules", "same")}
    return Made("python -m tests.measures.echoes --corpus DIR --compiler clang-M", figures)

"""The parts of ``make results``: each runs commands of the product and gives their figures."""

import json
import shlex
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from policybridge_bench.processes import module, server
from policybridge_bench.results import Measured, read_json
from policybridge_core.errors import PolicyFailedError
from policybridge_docs.results.figures import Figure
from policybridge_docs.results.sample import sample
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.scoring.results import Comparison, Measure, Scores
from policybridge_train.scoring.statistics import Change
from policybridge_train.scoring.summary import compare

_CLI: Final = "policybridge_client.cli"
_CONTENDERS: Final = "policybridge,grpc-echo/unary,triton,mosec/raw,compilerinterface,kserve,mlserver"
_BUDGETS: Final = (16, 32, 64)
CONSTANTS: Final = (
    "flag:-mllvm,-disable-machine-licm,-mllvm,-disable-lsr,"
    "-mllvm,-enable-ext-tsp-block-placement,-mllvm,-apply-ext-tsp-for-size"
)
"""Switches for all functions that make most code smaller."""

_MEASURES: Final[Sequence[Measure]] = ("text", "exec", "linked text", "linked exec")


@dataclass(frozen=True)
class Made:
    """The figures of a part.

    Attributes:
        command: measured them, as users write it.
        compiler: its version, where the figures depend on one.
        decided: the name of the bundled policy that made the decisions; empty: none did.

    """

    command: str
    figures: dict[str, Figure]
    compiler: str = ""
    decided: str = ""


def scores(options: Namespace) -> Made:
    """Score the bundled policy on the held-out projects of ``--corpus``, with clang-22 and the plugin."""
    words = ["score", "--part", "held-out", "--candidate", "inliner", "--compiler", "clang-22"]
    with TemporaryDirectory() as name, _bundled(Path(name)) as address:
        file = Path(name) / "scores.json"
        _run(
            _CLI, *words, "--corpus", options.corpus, "--plugins", options.plugins, "--server", address, "--json", file
        )
        (comparison,) = _read_scores(file)
    return Made(_command(words, "--corpus DIR"), dict(_scores(comparison)), comparison.version, decided="inliner")


def chosen(options: Namespace) -> Made:
    """Score the bundled policy of both kinds, and constant switches, on the held-out modules of ``--corpus``."""
    words = ["score", "--part", "held-out", "--module", "*", "--candidate", "size", "--compiler", "clang-22"]
    places = ["--candidate", CONSTANTS, "--corpus", options.corpus, "--plugins", options.plugins]
    with TemporaryDirectory() as name, _bundled(Path(name)) as address:
        file = Path(name) / "scores.json"
        _run(_CLI, *words, *places, "--server", address, "--json", file)
        policy, constants = _read_scores(file)
    figures = dict(_scores(policy)) | {f"constants.{key}": figure for key, figure in _scores(constants)}
    return Made(_command(words, "--corpus DIR"), figures, policy.version, decided="size")


def _read_scores(file: Path) -> Sequence[Comparison]:
    # json and not msgspec, because names of files may have bytes that are no UTF-8.
    written = json.loads(file.read_bytes())
    for comparison in written["comparisons"]:
        for row in comparison["modules"]:
            for side in (row["before"], row["after"]):
                side["totals"] = {measure: side[measure] for measure in _MEASURES[:2]}
    return msgspec.convert(written, Scores).comparisons


def _scores(comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    groups: Mapping[str, dict[str, str]] = {"cpp": {"language": "c++"}, "c": {"language": "c"}, "all": {}}
    for group, only in groups.items():
        for measure in _MEASURES:
            yield from _changes(f"{group}.{measure.replace(' ', '-')}", compare(comparison, measure, **only))
        modules = sum(row.ok for row in comparison.modules if not only or row.language == only["language"])
        yield f"{group}.modules", Figure(modules, "modules")
    yield "projects", Figure(len({row.project for row in comparison.modules if row.ok}), "projects")


def _changes(key: str, change: Change | None) -> Iterator[tuple[str, Figure]]:
    if change is not None and change.total is not None:
        value, low, high = (100 * each for each in (change.total.value, change.total.low, change.total.high))
        yield key, Figure(value, "%", 2, signed=True, low=low, high=high)


def demo(_: Namespace) -> Made:
    """Run the demo without its tuning."""
    with TemporaryDirectory() as name:
        file = Path(name) / "demo.json"
        _run("policybridge_demo", "--tune", 0, "--json", file)
        told = json.loads(file.read_bytes())
    figures = {key: figure for name, sums in told["libraries"].items() for key, figure in _sums(name, sums)}
    return Made("make demo", figures | dict(_sums("all", told["total"])), _zig(), decided="inliner")


def _zig() -> str:
    version = subprocess.run([*module("ziglang"), "version"], capture_output=True, text=True, check=True).stdout
    return f"zig {version.strip()}"


def _sums(name: str, sums: Mapping[str, float]) -> Iterator[tuple[str, Figure]]:
    yield f"{name}.modules", Figure(sums["modules"], "modules")
    yield f"{name}.decisions", Figure(sums["decisions"], "decisions")
    yield f"{name}.plain-text", Figure(sums["plain_text"], "bytes")
    yield f"{name}.text", Figure(sums["text"], "bytes")
    yield f"{name}.change", Figure(100 * (sums["text"] / sums["plain_text"] - 1), "%", 2, signed=True)


def embedded(options: Namespace) -> Made:
    """Compile the package re2 of ``--corpus`` by the bundled policy, and decide its decisions again in C."""
    words = ["score", "--project", "re2", "--candidate", "inliner", "--compiler", "clang-22"]
    comparing = ["embed", "compare", "inliner"]
    with TemporaryDirectory() as name:
        ledger = Path(name) / "ledger.db"
        with _bundled(Path(name), "--ledger", ledger) as address:
            _run(_CLI, *words, "--corpus", options.corpus, "--plugins", options.plugins, "--server", address)
        command = module(_CLI, *comparing, "--ledger", ledger)
        told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    figures = {
        "decisions": Figure(told["observations"], "decisions"),
        "different": Figure(told["different"], "decisions"),
        "time": Figure(told["nanoseconds"] / 1000, "µs", 1),
    }
    return Made(_command(comparing, "--ledger FILE"), figures, decided="inliner")


def speed(options: Namespace) -> Made:
    """Measure decisions of our server, of a C++ gRPC echo, and of other servers, which are downloaded.

    Raises:
        PolicyFailedError: a contender cannot run here.

    """
    words = ["peers", "--contenders", _CONTENDERS, "--ways", "socket,grpc-unix,grpc"]
    words += ["--generators", "native", "--clients", "1,8", "--rounds", str(options.rounds)]
    with TemporaryDirectory() as name:
        file = Path(name) / "run.json"
        _run("tests.peers", *words, "--cache", options.cache, "--json", file)
        run = read_json(file)
    if run.skipped:
        raise PolicyFailedError(f"not all contenders ran: {run.skipped}")
    command = shlex.join(["python", "-m", "tests.peers", *words])
    return Made(command, {key: figure for each in run.cases for key, figure in _case(each)})


def _case(measured: Measured) -> Iterator[tuple[str, Figure]]:
    """Give the latency of one client, or the rate of several."""
    case, p50, rate = measured.case, measured.median("p50"), measured.median("throughput")
    key = f"{case.contender}.{case.way}.{case.clients}"
    if case.clients == 1 and p50 is not None:
        yield f"{key}.p50", Figure(p50, "µs")
    elif rate is not None:
        yield f"{key}.rate", Figure(rate, "decisions/s", -2)


def tuned(options: Namespace) -> Made:
    """Tune the package re2 of ``--corpus`` from nothing, and score its store."""
    words = ["autotune", "--project", "re2", "--decide", "inline", "--budget", "16", "--compiler", "clang-22"]
    scoring = ["score", "--project", "re2", "--compiler", "clang-22"]
    places = ["--corpus", options.corpus, "--plugins", options.plugins]
    with TemporaryDirectory() as name:
        store, file = Path(name) / "tuned.db", Path(name) / "scores.json"
        _run(_CLI, *words, *places, "--store", store)
        _run(_CLI, *scoring, *places, "--candidate", store, "--json", file)
        (comparison,) = _read_scores(file)
    figures = dict(_sizes("", comparison))
    figures["modules"] = Figure(sum(row.ok for row in comparison.modules), "modules")
    return Made(_command(words, "--corpus DIR --store FILE"), figures, comparison.version)


def kills(options: Namespace) -> Made:
    """Kill servers, workers, replicas and databases, or take the totals of an earlier run, in ``--tally``."""
    words = ["kills", "--kills", "1000"]
    _run("tests.kills", *words[1:], "--tally", options.tally)
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
        _run("tests.mutants", *words[1:], "--tally", file, statuses=(0, 1))
        tally = json.loads(file.read_bytes())
    if tally["not run"]:
        raise PolicyFailedError(f"{tally['not run']} mutants were not run")
    figures = {name: Figure(tally[name]) for name in ("killed", "survived", "listed")}
    return Made(f"python -m tests.{shlex.join(words)}", figures | {"all": Figure(sum(tally.values()))})


def _sizes(prefix: str, comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    for measure in _MEASURES[:2]:
        change = compare(comparison, measure)
        if change and change.total:
            yield f"{prefix}{measure}", Figure(100 * change.total.value, "%", 2, signed=True)


def passes(options: Namespace) -> Made:
    """Tune a sample of held-out modules of ``--corpus``, and score the stores and constant switches against -Oz.

    A search whose store is in ``--stores`` goes on where it ended.
    """
    figures: dict[str, Figure] = {}
    compiler = ""
    places = ["--corpus", options.corpus, "--plugins", options.plugins, "--compiler", "clang-22"]
    options.stores.mkdir(parents=True, exist_ok=True)
    for key, language in (("c", "c"), ("cpp", "c++")):
        names = sample(options.corpus, language)
        only = [word for name in names for word in ("--module", name)]
        stores = {budget: options.stores / f"{key}-{budget}.db" for budget in _BUDGETS}
        for budget, store in stores.items():
            _run(_CLI, "autotune", *only, *places, "--budget", budget, "--store", store)
        with TemporaryDirectory() as name:
            file = Path(name) / "scores.json"
            candidates = [word for each in (CONSTANTS, *stores.values()) for word in ("--candidate", each)]
            _run(_CLI, "score", *only, *places, *candidates, "--json", file)
            comparisons = _read_scores(file)
        for label, comparison in zip(("constants", *map(str, stores)), comparisons, strict=True):
            figures |= dict(_sizes(f"{key}.{label}.", comparison))
            compiler = comparison.version
        figures[f"{key}.modules"] = Figure(len(names), "modules")
    return Made("policybridge autotune --budget N --compiler clang-22 --corpus DIR --store FILE", figures, compiler)


def packages(options: Namespace) -> Made:
    """Build Debian packages with tuned stores, run their tests, and count instructions: theirs, and the compiler's.

    What an earlier call has built in ``--packages`` is not built again.
    """
    places = ["--plugins", options.plugins, "--work", options.packages]
    figures: dict[str, Figure] = {}
    sums: dict[str, Counter[str]] = {"c": Counter(), "cpp": Counter()}
    with TemporaryDirectory() as name:
        built, compiles = Path(name) / "built.json", Path(name) / "compiles.json"
        _run("tests.measures.packages", *places, "--json", built)
        _run("tests.measures.compile_instructions", *places, "--json", compiles)
        for package, its in json.loads(built.read_bytes()).items():
            plain, tuned, key = its["plain"], its["tuned"], its["language"].replace("+", "p")
            figures |= dict(_linked(package, plain, tuned))
            figures[f"{package}.instructions"] = Figure(tuned["instructions"] / plain["instructions"], digits=3)
            sums[key].update(packages=1, **{f"{side}.{what}": its[side][what] for side in _SIDES for what in _LINKED})
        for package, counts in json.loads(compiles.read_bytes()).items():
            for way in ("plugin", "store"):
                figures[f"{package}.{way}"] = Figure(counts[way] / counts["plain"], digits=3)
    for key, its in sums.items():
        plain, tuned = ({what: its[f"{side}.{what}"] for what in _LINKED} for side in _SIDES)
        figures |= dict(_linked(key, plain, tuned)) if its else {}
        figures[f"{key}.packages"] = Figure(its["packages"], "packages")
    return Made("python -m tests.measures.packages && python -m tests.measures.compile_instructions", figures, _clang())


def sqlite(options: Namespace) -> Made:
    """Score the store that ``make demo-autotune`` has made in ``--sqlite``."""
    words = ["score", "--module", "sqlite3/sqlite3.o", "--compiler", "clang-22", "--plugins", options.plugins]
    with TemporaryDirectory() as name:
        file = Path(name) / "scores.json"
        places = ["--corpus", options.sqlite / "clang-22", "--candidate", options.sqlite / "clang-22.db"]
        _run(_CLI, *words, *places, "--json", file)
        (comparison,) = _read_scores(file)
    return Made("make demo-autotune MINUTES=58", dict(_sizes("", comparison)), comparison.version)


def echoes(options: Namespace) -> Made:
    """Count objects of LLVM's own decisions, or take the counts of earlier runs in ``--echoes``."""
    figures: dict[str, Figure] = {}
    for major in (22, 19):
        file = options.echoes / f"clang-{major}.json"
        if not file.exists():
            places = ["--corpus", options.echoes / f"corpus-{major}", "--plugins", options.plugins, "--json", file]
            # With status 1 an object differs; the figures say how many.
            _run("tests.measures.echoes", "--compiler", f"clang-{major}", *places, statuses=(0, 1))
        counted = json.loads(file.read_bytes())
        figures |= {f"{major}.{what}": Figure(counted[what]) for what in ("modules", "same")}
    return Made("python -m tests.measures.echoes --corpus DIR --compiler clang-M", figures)


_SIDES: Final = ("plain", "tuned")
_LINKED: Final = ("text", "file")


def _linked(key: str, plain: Mapping[str, int], tuned: Mapping[str, int]) -> Iterator[tuple[str, Figure]]:
    for what in _LINKED:
        yield f"{key}.{what}", Figure(100 * (tuned[what] / plain[what] - 1), "%", 2, signed=True)


def _clang() -> str:
    return Compiler.find("clang-22").version


def attacks(_: Namespace) -> Made:
    """Run the attacks on the gRPC port and on every other door."""
    figures: dict[str, Figure] = {}
    with TemporaryDirectory() as name:
        ports, doors = Path(name) / "ports.json", Path(name) / "doors.json"
        # With status 1 a promise is broken; the figures say which.
        _run("tests.attacks", "--json", ports, statuses=(0, 1))
        _run("tests.attacks.doors", "--json", doors, statuses=(0, 1))
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
    _run(command[0], *command[1:], *places, statuses=(0, 1))
    tally = json.loads(options.compared.read_bytes())
    figures = {name: Figure(tally["counts"].get(name, 0)) for name in ("programs", "modules", "compiles", "choices")}
    figures |= {
        "left-out": Figure(tally["counts"].get("too long", 0)),
        "different": Figure(len(tally["disagreements"])),
    }
    compared = f"python -m {command[0]} --programs {tally['counts'].get('programs', 0)}"
    return Made(compared, figures, tally["compiler"])


def link_time(options: Namespace) -> Made:
    """Link programs with LTO where the bundled policy decides before linking, at link time and in both.

    What an earlier call has built in ``--linked`` is not built again.
    """
    words = ["tests.measures.link_time"]
    command = module(*words, "--work", options.linked)
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    figures: dict[str, Figure] = {}
    for program, modes in told.items():
        for mode, sizes in modes.items():
            plain = sizes["none"]["text"]
            figures[f"{program}.{mode}.plain"] = Figure(plain)
            for way in _PHASES:
                change = 100 * (sizes[f"inliner {way}"]["text"] / plain - 1)
                figures[f"{program}.{mode}.{way}"] = Figure(change, "%", 2, signed=True)
    return Made(f"python -m {words[0]} --work DIR", figures, _clang(), decided="inliner")


_PHASES: Final = ("pre-link", "link", "both")


PARTS: Final[Mapping[str, Callable[[Namespace], Made]]] = {
    "scores": scores,
    "demo": demo,
    "speed": speed,
    "embedded": embedded,
    "tuned": tuned,
    "kills": kills,
    "mutants": mutants,
    "passes": passes,
    "chosen": chosen,
    "packages": packages,
    "sqlite": sqlite,
    "echoes": echoes,
    "attacks": attacks,
    "differential": differential,
    "link_time": link_time,
}


@contextmanager
def _bundled(folder: Path, *options: object) -> Iterator[str]:
    """Serve the bundled policies on a socket."""
    address = folder / "policybridge.sock"
    with server(module(_CLI, "serve", "--demo", "--socket", address, *options), log=folder / "server.log"):
        yield f"socket:{address}"


def _run(name: str, *words: object, statuses: Sequence[int] = (0,)) -> None:
    command = module(name, *words)
    sys.stderr.write(f"{shlex.join(command)}\n")
    if (status := subprocess.run(command, check=False).returncode) not in statuses:
        raise PolicyFailedError(f"{shlex.join(command)} ended with {status}")


def _command(words: Sequence[str], *more: str) -> str:
    return " ".join(["policybridge", shlex.join(words), *more])

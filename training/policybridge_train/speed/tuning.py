"""``policybridge autotune --objective cycles``: a faster program from a build, and a store that keeps it so."""

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_train.compiling.job import FarmCompiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.notes import BuildCommand
from policybridge_train.processes.process import Running
from policybridge_train.speed.asked import Asked
from policybridge_train.speed.confirming import LEAST_PAIRS, Times
from policybridge_train.speed.keeping import Kept
from policybridge_train.speed.making import Making
from policybridge_train.speed.relinking import Relinking
from policybridge_train.speed.running import RunCommand, Runner, check_run
from policybridge_train.speed.search import SpeedSearch
from policybridge_train.speed.telling import Pair, Speed, Spent
from policybridge_train.speed.timing import compare_programs
from policybridge_train.tuning.applying import Ending
from policybridge_train.tuning.storing import StoreKeeper

OBJECTIVES: Final = ("text", "cycles")

_MOST_PAIRS: Final = 1000
_MOST_GROWTH: Final = 1000


def add_speed(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the search for speed."""
    add = parser.add_argument
    add("--objective", choices=OBJECTIVES, default=OBJECTIVES[0], help="what becomes less (default: %(default)s)")
    add("--run", metavar="COMMAND", help="with --objective cycles: runs the build's program, './bench input'")
    add("--growth", type=_percent, default=1.0, metavar="PERCENT", help="the program's text at most (default: 1)")
    add("--pairs", type=_pairs, default=20, metavar="N", help="pairs of timed runs at the end (default: %(default)s)")


def check_speed(arguments: argparse.Namespace) -> None:
    """Refuse options that do not go together.

    Raises:
        InvalidError: some do not, or ``--run`` is no command that can be read.

    """
    if arguments.objective == "text":
        if arguments.run is not None:
            raise InvalidError("--run is for --objective cycles: nothing is run for a smaller program")
        return
    if arguments.run is None:
        raise InvalidError("--objective cycles counts a run of the program: give --run './bench input'")
    beside = {"--corpus": arguments.corpus, "--linked": arguments.linked, "--lto": arguments.lto}
    beside |= {"--from": arguments.policy, "--ray": arguments.ray, "--farm": arguments.farm}
    if odd := next((name for name, value in beside.items() if value), None):
        raise InvalidError(f"--objective cycles builds and runs a program on this machine: leave out {odd}")
    check_run(arguments.run)


@dataclass(frozen=True)
class SpeedTuning:
    """Everything that a search for speed needs of the command.

    Attributes:
        commands: of the build.
        corpus: the build's modules.
        names: by object: the name of its module.
        compiler: of modules.
        running: what runs.
        jobs: compiles at a time.
        keeper: of the store.
        work: the folder of the search.

    """

    commands: Sequence[BuildCommand]
    corpus: Corpus
    names: Mapping[Path, str]
    compiler: FarmCompiler
    running: Running
    jobs: int
    keeper: StoreKeeper
    work: Path

    def run(self, arguments: argparse.Namespace, asked: Asked, limits: Limits, ending: Ending) -> int:
        """Tune, confirm and tell; the exit status is 0.

        Raises:
            PolicyBridgeError: the program cannot be built or run.

        """
        command = RunCommand.parse(arguments.run, Path.cwd())
        relinking = Relinking.of(command.program, self.commands, self.names)
        there = {module.name: module for module in self.corpus.modules}
        modules = [there[name] for name in relinking.modules if name in there]
        if not modules:
            raise PreconditionError(f"--run starts {command.program}, of which no source is to be tuned")
        told = (ending.tuned.compiler.version, arguments.run, asked.inline, asked.passes, *sorted(asked.spared))
        known = sorted(f"{module.name}@{module.digest}" for module in modules)
        kept = Kept(self.work / "speed.best", " ".join(map(str, (*told, *known))))
        with Runner(command, limits, self.running) as runner, self._objects() as objects:
            making = Making(self.compiler, relinking, runner, self.jobs, self.running, objects, limits)
            search = SpeedSearch(modules, making, asked, kept)
            search.run()
            choose(search, making, arguments.pairs)
            time = _confirmed(search, making, arguments.pairs)
        stored = time is not None and not time.is_slower
        if stored:
            self._store(search)
        elif time is not None:
            kept.forget()
        _tell(_result(command.program.name, search, time, stored=stored), ending, json=arguments.json)
        return 0

    @contextmanager
    def _objects(self) -> Iterator[Path]:
        """Give an empty folder for the block; a search that was killed has left its objects."""
        folder = self.work.absolute() / "speed"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _store(self, search: SpeedSearch) -> None:
        found = search.searches()
        for module, each in found:
            self.keeper.put(module, each)
        self.keeper.write()


def choose(search: SpeedSearch, making: Making, pairs: int) -> None:
    """Choose among the programs of a search by their time, in half of the pairs for each."""
    half = max(LEAST_PAIRS, pairs // 2)
    search.choose(lambda one, other: compare_programs(making, one, other, half))


def _confirmed(search: SpeedSearch, making: Making, pairs: int) -> Times | None:
    """Time the best program against that by LLVM's own decisions; ``None`` if it is the same."""
    if search.best is search.before:
        return None
    return compare_programs(making, search.before.objects, search.best.objects, pairs)


def _result(program: str, search: SpeedSearch, time: Times | None, *, stored: bool) -> Speed:
    before, best = search.before, search.best
    decided = [each.best for _, each in search.searches()]
    return Speed(
        program,
        Pair(before.cycles, best.cycles),
        Pair(before.text, best.text),
        time,
        dict(sorted(search.hot.items(), key=lambda each: -each[1])),
        search.own,
        sum(len(each.inlining) for each in decided),
        sum(map(len, (its for each in decided for its in each.passes.values()))),
        Spent(search.spent, search.modules, search.runs),
        search.failures,
        stored,
    )


def _tell(speed: Speed, ending: Ending, *, json: bool) -> None:
    if json:
        speed.write_json(ending.tuned.store, list(ending.applying()))
        return
    for line in speed.lines(ending):
        sys.stdout.write("".join(one if one.isprintable() else repr(one)[1:-1] for one in line) + "\n")


def asked_of(arguments: argparse.Namespace, kinds: Sequence[str]) -> Asked:
    """Read the options of a search."""
    until = None if arguments.minutes is None else monotonic() + 60 * arguments.minutes
    return Asked(arguments.budget, arguments.growth, "inline" in kinds, "passes" in kinds, arguments.spare, until)


def _percent(text: str) -> float:
    number = float(text)
    if not 0 <= number <= _MOST_GROWTH:
        raise argparse.ArgumentTypeError(f"{text} is no percentage: give 0 to {_MOST_GROWTH}")
    return number


def _pairs(text: str) -> int:
    number = int(text)
    if not LEAST_PAIRS <= number <= _MOST_PAIRS:
        raise argparse.ArgumentTypeError(f"{text} is no number of pairs: give {LEAST_PAIRS} to {_MOST_PAIRS}")
    return number

"""Autotune for speed on Debian programs: ``python -m tests.measures.cycles --package bzip2 --work DIR --plugins DIR``.

Each program of cycles.toml is built at -O2 by clang-22 and tuned on its first input, as by ``policybridge autotune
--objective cycles``. On its third input, which the search has not seen, the tuned program is counted and timed beside
LLVM's own; the second is for choosing between settings. A program that is confirmed slower on the first is not stored
by the command, so that on the others it is LLVM's own. With ``--levels``, the programs of LLVM's other levels are
counted and timed beside that of -O2, on all inputs. The end says how often the estimate and the time have one sign,
where the time differs by more than 1 % and its interval has no 1. With ``--profile``, both are built at -O3 with a
profile of the first input.

It needs Debian's packages clang-22, valgrind and dpkg-dev, and the build dependencies. Downloads are kept, and what was
measured with the same settings, in measured.json of the package's folder.
"""

import argparse
import math
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.job import FarmCompiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module
from policybridge_train.corpus.bitcode import FrontEnd
from policybridge_train.corpus.debian.apt import Apt
from policybridge_train.corpus.parts import part_of
from policybridge_train.farms.local import LocalFarm
from policybridge_train.speed.asked import Asked
from policybridge_train.speed.confirming import Times
from policybridge_train.speed.making import Making
from policybridge_train.speed.relinking import Relinking
from policybridge_train.speed.running import RunCommand, Runner
from policybridge_train.speed.search import SpeedSearch
from policybridge_train.speed.timing import compare_programs
from policybridge_train.speed.tuning import choose
from policybridge_train.tuning.building import built, converted
from policybridge_train.tuning.flips import Decided
from tests.measures.cycles_inputs import make

TABLE: Final = Path(__file__).with_suffix(".toml")
INPUTS: Final = ("tune", "choose", "held")
"""What an input is for; its place is the number from which it is made."""

LEVELS: Final = ("-O1", "-Os", "-Oz", "-O3")


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program of the table; see there."""

    language: str
    build: str
    run: str
    input: str
    size: int
    configure: str = "true"


class Compared(msgspec.Struct, frozen=True):
    """A program beside that by LLVM's own decisions.

    Attributes:
        cycles: the ratio of their estimated cycles.
        time: of their processor time.
        events: of callgrind, by name: how often each took place by LLVM's own decisions, and with the others.

    """

    cycles: float
    time: Times
    events: dict[str, tuple[int, int]] = {}

    @property
    def counts(self) -> bool:
        """Whether the time differs by more than 1 % for sure."""
        return (self.time.is_faster or self.time.is_slower) and abs(self.time.factor - 1) > 0.01

    @property
    def agrees(self) -> bool:
        """Whether the estimate has the sign of the time."""
        return (self.cycles < 1) == (self.time.factor < 1)


class Measured(msgspec.Struct, frozen=True):
    """A package: of its tuned program the ratio of text, on each input the rest; and by level and input the others.

    A program is not stored if it is LLVM's own or confirmed slower on the input of the search; others are LLVM's then.
    """

    part: str
    text: float
    compiles: int
    tuned: dict[str, Compared]
    stored: bool = True
    levels: dict[str, dict[str, Compared]] = {}


class Kept(msgspec.Struct, frozen=True):
    """The measurements of a package, and their settings."""

    budget: int
    pairs: int
    measured: Measured
    entry: Entry
    profiled: bool = False


def read_table() -> dict[str, Entry]:
    """Read cycles.toml."""
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), dict[str, Entry])


@dataclass(frozen=True)
class Bench:
    """Measures one package.

    Attributes:
        name: of the source package.
        entry: in the table.
        folder: of the package.
        plugins: where the plugin for clang-22 is.
        budget: compiles of each module.
        pairs: of timed runs.
        profiled: whether the build has a profile.

    """

    name: str
    entry: Entry
    folder: Path
    plugins: Path
    budget: int
    pairs: int
    profiled: bool = False

    @property
    def _build(self) -> Path:
        return self.folder / "build"

    def kept(self, levels: Sequence[str]) -> Measured:
        """Give what an earlier run measured with the same settings, and measure the rest.

        Raises:
            PolicyBridgeError: a step fails.

        """
        file = self.folder / "measured.json"
        measured = self._read(file)
        if measured is None:
            flags = f"-O3 -fprofile-use={self._profile()}" if self.profiled else "-O2"
            with self.making(flags) as (modules, making):
                measured = self._tuned(modules, making)
            self._write(file, measured)
        if lacking := [level for level in levels if level not in measured.levels]:
            measured = msgspec.structs.replace(measured, levels={**measured.levels, **self._leveled(lacking)})
            self._write(file, measured)
        return msgspec.structs.replace(measured, levels={level: measured.levels[level] for level in levels})

    def _write(self, file: Path, measured: Measured) -> None:
        kept = Kept(self.budget, self.pairs, measured, self.entry, self.profiled)
        file.write_bytes(msgspec.json.encode(kept))

    def _read(self, file: Path) -> Measured | None:
        """Read the measurements of an earlier run with the same settings; ``None`` if it left none."""
        if not file.exists():
            return None
        found = msgspec.json.decode(file.read_bytes(), type=Kept)
        settings = (found.budget, found.pairs, found.entry, found.profiled)
        same = settings == (self.budget, self.pairs, self.entry, self.profiled)
        return found.measured if same else None

    def _prepare(self, flags: str, linking: str = "") -> None:
        """Make the build's folder anew, and configure it."""
        shutil.rmtree(self._build, ignore_errors=True)
        shutil.copytree(self.folder / "source", self._build, symlinks=True)
        for number in range(len(INPUTS)):
            (self._build / f"input-{number}").write_bytes(make(self.entry.input, self.entry.size, number))
        os.environ.update(_environment(flags, linking))
        with chdir(self._build):
            self._shell(self.entry.configure)

    def _profile(self) -> Path:
        """Profile the first input."""
        raw, profile = self.folder / "raw", self.folder / "program.profdata"
        shutil.rmtree(raw, ignore_errors=True)
        self._prepare("-O3", f" -fprofile-generate={raw}")
        with chdir(self._build):
            self._shell(self.entry.build)
            self._shell(f"{self.entry.run.replace('INPUT', 'input-0')} > ../printed")
        self._shell(f"llvm-profdata-22 merge -o {profile} {raw}")
        return profile

    @contextmanager
    def making(self, flags: str) -> Iterator[tuple[Sequence[Module], Making]]:
        """Build; give the program's modules, and what makes and runs programs of them on the first input."""
        self._prepare(flags)
        with chdir(self._build):
            tool = CompileTool(Compiler.find("clang-22"), Limits(), plugins=self.plugins)
            farm = LocalFarm()
            log = self.folder / "build.log"
            with log.open("wb") as out:
                commands = built(["bash", "-ec", self.entry.build], self.folder, out)
            front_end = FrontEnd(tool.compiler, None, lines=False, limits=tool.limits, profiles=True)
            corpus, names = converted(commands, front_end, self.folder / "corpus", farm.slots)
            command = self._command(0)
            relinking = Relinking.of(command.program, commands, names)
            known = {module.name: module for module in corpus.modules}
            objects = self.folder / "objects"
            objects.mkdir(exist_ok=True)
            compiler = FarmCompiler(farm, tool.recipe)
            with Runner(command, tool.limits, farm.running) as runner:
                making = Making(compiler, relinking, runner, farm.slots, farm.running, objects, tool.limits)
                yield [known[name] for name in relinking.modules], making

    def _tuned(self, modules: Sequence[Module], making: Making) -> Measured:
        search = SpeedSearch(modules, making, Asked(self.budget, growth=1.0))
        search.run()
        choose(search, making, self.pairs)
        best, before = search.best, search.before
        part, (first, *others) = part_of(self.name).value, INPUTS
        own = dict.fromkeys(INPUTS, Compared(1.0, Times(1.0, 1.0, 1.0, self.pairs, 0.0)))
        if best.objects == before.objects:
            return Measured(part, 1.0, search.spent, own, stored=False)
        tuned = self._compared(making, 0, before.objects, {first: best.objects})
        if tuned[first].time.is_slower:
            return Measured(part, 1.0, search.spent, own | tuned, stored=False)
        for number, purpose in enumerate(others, 1):
            tuned |= self._compared(making, number, before.objects, {purpose: best.objects})
        return Measured(part, best.text / before.text, search.spent, tuned)

    def _leveled(self, levels: Sequence[str]) -> dict[str, dict[str, Compared]]:
        """Compare the programs of levels with that of -O2, on each input."""
        versions = dict[str, Mapping[str, Path]]()
        for level in levels:
            with self.making(level) as (modules, making):
                versions[level] = objects_of(modules, making)
        with self.making("-O2") as (modules, making):
            before = objects_of(modules, making)
            found = [self._compared(making, number, before, versions) for number in range(len(INPUTS))]
        return {level: {name: each[level] for name, each in zip(INPUTS, found, strict=True)} for level in levels}

    def _command(self, number: int) -> RunCommand:
        return RunCommand.parse(self.entry.run.replace("INPUT", f"input-{number}"), self._build)

    def _compared(
        self, making: Making, number: int, before: Mapping[str, Path], versions: Mapping[str, Mapping[str, Path]]
    ) -> dict[str, Compared]:
        """Compare versions of the program, by name, with that of ``before`` on an input."""
        found = {}
        with Runner(self._command(number), making.limits, making.running) as runner:
            here = replace(making, runner=runner)
            counted, ran = runner.count(here.linked(before, "a")[0])
            for name, after in versions.items():
                other, again = runner.count(here.linked(after, "b")[0])
                if ran.output != again.output:
                    raise PolicyBridgeError(f"{self.name}: the program prints something else")
                events = {event: (often, other.events[event]) for event, often in counted.events.items()}
                times = compare_programs(here, before, after, self.pairs)
                found[name] = Compared(other.total / counted.total, times, events)
        return found

    def _shell(self, command: str) -> None:
        with (self.folder / "shell.log").open("ab") as out:
            subprocess.run(["bash", "-ec", command], stdout=out, stderr=out, check=True)


def objects_of(modules: Sequence[Module], making: Making) -> dict[str, Path]:
    """Compile modules by LLVM's own decisions; give their objects by name."""
    made = making.compiled([(module, Decided()) for module in modules])
    return {module.name: path for module, (_, path) in zip(modules, made, strict=True)}


def _environment(flags: str, linking: str) -> dict[str, str]:
    """Give the variables of a build; ``linking`` are flags of its links, too."""
    compilers = {"CC": f"clang-22{linking}", "CXX": f"clang++-22{linking}"}
    return {**compilers, "CFLAGS": flags, "CXXFLAGS": flags, "JOBS": "2"}


def fetch(name: str, work: Path) -> Path:
    """Unpack a source package, if that was not done before; give its folder."""
    folder = work / name
    if not (folder / "source").exists():
        folder.mkdir(parents=True, exist_ok=True)
        archive = Apt.prepare(work / "apt").download(name, folder)
        shutil.rmtree(folder / "unpacked", ignore_errors=True)
        subprocess.run(["dpkg-source", "--no-check", "-x", archive.name, "unpacked"], cwd=folder, check=True)
        (folder / "unpacked").rename(folder / "source")
    return folder


class Signs(msgspec.Struct, frozen=True):
    """How often the estimate agrees with the time.

    Attributes:
        agreeing: programs whose estimate has the sign of the time.
        pairs: programs and inputs whose time differs by more than 1 % for sure.

    """

    agreeing: int
    pairs: int

    @classmethod
    def of(cls, found: Iterable[Measured]) -> "Signs":
        """Count them."""
        groups = [group for each in found for group in (each.tuned, *each.levels.values())]
        compared = [one for group in groups for one in group.values() if one.counts]
        return cls(sum(one.agrees for one in compared), len(compared))


class Result(msgspec.Struct, frozen=True):
    """The JSON of a run: packages by name, and the signs of all."""

    packages: dict[str, Measured]
    signs: Signs


def told(found: Mapping[str, Measured]) -> Iterator[str]:
    """Give the lines for people."""
    for name, each in found.items():
        for purpose, one in each.tuned.items():
            yield f"{name} ({each.part}) {purpose}: {_shown(one)}, text × {each.text:.4f}"
        if not each.stored:
            slower = each.tuned[INPUTS[0]].time.is_slower
            why = (
                "it is confirmed to be slower on the input of the search" if slower else "the search has found nothing"
            )
            yield f"{name}: not stored: {why}"
        for level, inputs in each.levels.items():
            for purpose, one in inputs.items():
                yield f"{name} {level} {purpose}: {_shown(one)}"
    held = [each.tuned["held"] for each in found.values()]
    if held:
        means = [math.exp(sum(map(math.log, values)) / len(held)) for values in _columns(held)]
        yield f"held-out input, geometric mean of {len(held)}: cycles × {means[0]:.4f}, processor time × {means[1]:.4f}"
    signs = Signs.of(found.values())
    yield f"signs: {signs.agreeing} of {signs.pairs} estimates agree with the time, where it differs by 1 %"


def _columns(held: Sequence[Compared]) -> tuple[list[float], list[float]]:
    return [one.cycles for one in held], [one.time.factor for one in held]


def _shown(one: Compared) -> str:
    time = one.time
    interval = f"{time.low:.4f} to {time.high:.4f}"
    return f"cycles × {one.cycles:.4f}, processor time × {time.factor:.4f} ({interval}), {time.verdict}"


def main() -> int:
    """Measure; write JSON to standard output, and lines for people to standard error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", action="append", choices=sorted(read_table()), help="repeatable (default: all)")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--plugins", type=Path, required=True)
    parser.add_argument("--budget", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=20)
    more = parser.add_mutually_exclusive_group()
    more.add_argument("--levels", action="store_true")
    more.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    table, work = read_table(), arguments.work.resolve()
    found, failed = dict[str, Measured](), False
    for name in arguments.package or table:
        folder = fetch(name, work)
        plugins = arguments.plugins.resolve()
        bench = Bench(name, table[name], folder, plugins, arguments.budget, arguments.pairs, arguments.profile)
        try:
            found[name] = bench.kept(LEVELS if arguments.levels else ())
        except (PolicyBridgeError, subprocess.CalledProcessError) as error:
            sys.stderr.write(f"{name}: {error}\n")
            failed = True
    sys.stderr.writelines(f"{line}\n" for line in told(found))
    result = msgspec.json.encode(Result(found, Signs.of(found.values())))
    sys.stdout.buffer.write(msgspec.json.format(result, indent=2) + b"\n")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())

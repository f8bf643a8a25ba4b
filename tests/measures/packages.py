"""Debian packages with a tuned store: ``python -m tests.measures.packages --package zlib --package re2 --work DIR``.

Each package is built at plain -Oz, tuned by ``policybridge autotune``, and built again with the plugin and the store;
both builds with ``-ffunction-sections`` and ``-Wl,--gc-sections``. Its own tests run on both. Text is that of the
stripped programs and libraries, and instructions are those that callgrind counts in a run of tests. packages.toml has
the commands. Steps that an earlier call has done in DIR are not repeated.

It needs Debian's packages clang-22, valgrind and dpkg-dev, and the package's build dependencies.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from policybridge_bench.processes import module
from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_train.corpus.debian.apt import Apt
from policybridge_train.corpus.parts import part_of
from policybridge_train.objects.elf import ObjectFile

T = TypeVar("T")

RECIPES: Final = Path(__file__).with_suffix(".toml")
_FLAGS: Final = "-Oz -ffunction-sections"
_COLLECTED: Final = re.compile(r"^==\d+== Collected : (\d+)", re.MULTILINE)


class Recipe(msgspec.Struct, frozen=True):
    """How a package is built and tested; each but ``language`` and ``linked`` is a shell's command.

    Attributes:
        language: ``c`` or ``c++``.
        configure: before the build.
        build: the build that is tuned.
        linked: the built programs and libraries whose sizes count.
        check: the package's own tests.
        count: a run of tests whose instructions count; empty: no store is tuned for the package.
        tune: further options of ``policybridge autotune``.
        compile: clang's arguments for one source, of which `tests.measures.compile_instructions` counts instructions.

    """

    language: str
    configure: str
    build: str
    linked: list[str]
    check: str
    count: str = ""
    compile: str = ""
    tune: list[str] = []


class Size(msgspec.Struct, frozen=True):
    """Bytes after stripping.

    Attributes:
        text: all that is loaded and never written, as size(1) counts it: code, constants and unwinding tables.
        code: of it, the executable sections.
        file: the whole files.

    """

    text: int
    code: int
    file: int


class Side(Size, frozen=True):
    """A build, and the instructions of the run of tests."""

    instructions: int


class Measured(msgspec.Struct, frozen=True):
    """A package; both builds have passed its tests."""

    language: str
    part: str
    plain: Side
    tuned: Side


def read_recipes() -> dict[str, Recipe]:
    """Read packages.toml."""
    return msgspec.convert(tomllib.loads(RECIPES.read_text(encoding="utf-8")), dict[str, Recipe])


@dataclass(frozen=True)
class Package:
    """A source package, and its builds in folders beside each other.

    Attributes:
        name: of the source package.
        recipe: of its build.
        work: has a folder of each package.

    """

    name: str
    recipe: Recipe
    work: Path

    @property
    def folder(self) -> Path:
        """The folder of all builds."""
        return self.work / self.name

    def once(self, step: str, run: Callable[[], None]) -> None:
        """Run a step, unless an earlier call has done it."""
        done = self.folder / f"{step}.done"
        if not done.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            run()
            done.touch()

    def fetch(self) -> None:
        """Fetch the sources and unpack them.

        Raises:
            PreconditionError: the archive cannot be unpacked.

        """
        archive = Apt.prepare(self.work / "apt").download(self.name, self.folder)
        shutil.rmtree(self.folder / "source", ignore_errors=True)
        _run(["dpkg-source", "-x", archive.name, "source"], self.folder, self.folder / "source.log")

    def copy(self, way: str) -> Path:
        """Copy the sources for a build; give its folder."""
        shutil.rmtree(self.folder / way, ignore_errors=True)
        shutil.copytree(self.folder / "source", self.folder / way, symlinks=True)
        return self.folder / way

    def build(self, way: str, environment: Mapping[str, str]) -> None:
        """Build anew, and run the package's own tests.

        Raises:
            PreconditionError: a step fails; its log says why.

        """
        self.copy(way)
        for step in (self.recipe.configure, self.recipe.build, self.recipe.check):
            self.shell(way, step, environment)

    def shell(self, way: str, command: str, environment: Mapping[str, str]) -> None:
        """Run a command of the recipe in a build's folder.

        Raises:
            PreconditionError: it fails; its log says why.

        """
        added = {"JOBS": str(os.cpu_count() or 1), "COUNT": "", **environment}
        _run(["bash", "-ec", command], self.folder / way, self.folder / f"{way}.log", {**_inherited(), **added})

    def size(self, way: str) -> Size:
        """Give the bytes of the stripped programs and libraries of a build.

        Raises:
            PreconditionError: the build has not made one of them.

        """
        sizes = [_stripped(self.folder / way / each) for each in self.recipe.linked]
        return Size(*map(sum, zip(*sizes, strict=True)))


@dataclass(frozen=True)
class Bench:
    """Builds one package in both ways.

    Attributes:
        package: the sources, and where they are built.
        plugin: the library for clang.
        budget: compiles of each module.

    """

    package: Package
    plugin: Path
    budget: int

    @property
    def _store(self) -> Path:
        return self.package.folder / f"tuned-{self.budget}.db"

    def measure(self) -> Measured:
        """Build, tune, test and count.

        Raises:
            PreconditionError: a step fails; its log says why.

        """
        tuned = f"tuned-{self.budget}"
        # A linker has no use for these, which some packages take for an error.
        apply = f" -Qunused-arguments -fpass-plugin={self.plugin} -mllvm -policybridge-decisions={self._store}"
        self.package.once("source", self.package.fetch)
        self.package.once("plain", lambda: self.package.build("plain", _environment()))
        self.package.once(f"tune-{self.budget}", self._tune)
        self.package.once(tuned, lambda: self.package.build(tuned, _environment(apply)))
        recipe = self.package.recipe
        return Measured(recipe.language, part_of(self.package.name).value, self._side("plain"), self._side(tuned))

    def _tune(self) -> None:
        recipe, folder = self.package.recipe, self.package.copy("tune")
        self.package.shell("tune", recipe.configure, _environment())
        words = ["autotune", "--store", self._store, "--budget", self.budget, "--compiler", "clang-22"]
        words += [*recipe.tune, "--plugins", self.plugin.parent, "--", "bash", "-ec", recipe.build]
        log = self.package.folder / "tune.log"
        jobs = {"JOBS": str(os.cpu_count() or 1)}
        _run(module("policybridge_client.cli", *words), folder, log, {**_inherited(), **jobs, **_environment()})

    def _side(self, way: str) -> Side:
        folder = self.package.folder
        kept = folder / f"{way}.instructions"
        if not kept.exists():
            # Not in the log: the tests write there, too.
            told = folder / f"{way}.callgrind"
            told.unlink(missing_ok=True)
            count = f"valgrind --tool=callgrind --callgrind-out-file=/dev/null --log-file={told}-%p"
            for old in folder.glob(f"{way}.callgrind-*"):
                old.unlink()
            self.package.shell(way, self.package.recipe.count, {**_environment(), "COUNT": count})
            counts = [
                int(found)
                for file in folder.glob(f"{way}.callgrind-*")
                for found in _COLLECTED.findall(file.read_text(encoding="utf-8"))
            ]
            if not counts:
                raise PreconditionError(f"{self.package.name}: callgrind counted nothing; see {folder}")
            kept.write_text(str(sum(counts)), encoding="ascii")
        size = self.package.size(way)
        return Side(size.text, size.code, size.file, int(kept.read_text(encoding="ascii")))


def _environment(apply: str = "") -> dict[str, str]:
    flags = {"CFLAGS": _FLAGS, "CXXFLAGS": _FLAGS, "LDFLAGS": "-Wl,--gc-sections"}
    return {**flags, "CC": f"clang-22{apply}", "CXX": f"clang++-22{apply}"}


def _inherited() -> dict[str, str]:
    cached = {"CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER"}
    return {name: value for name, value in os.environ.items() if name not in cached}


def _run(command: Sequence[str], folder: Path, log: Path, environment: dict[str, str] | None = None) -> None:
    with log.open("ab") as out:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=out, stderr=out, check=False)
    if done.returncode:
        raise PreconditionError(f"{shlex.join(command)} ended with {done.returncode}; see {log}")


def _stripped(file: Path) -> tuple[int, int, int]:
    """Give the bytes of text, of code and of the file, after stripping."""
    if not file.exists():
        raise PreconditionError(f"the build has made no {file}")
    copy = file.with_name(f"{file.name}.stripped")
    subprocess.run(["strip", "-o", copy, file.resolve()], check=True)
    told = subprocess.run(["size", copy], capture_output=True, text=True, check=True).stdout
    return int(told.splitlines()[1].split()[0]), ObjectFile.read(copy).exec, copy.stat().st_size


def add_options(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Declare the options of each measure of packages.

    Args:
        parser: takes them.
        names: of the packages that can be measured.

    """
    parser.set_defaults(names=names)
    parser.add_argument("--package", action="append", choices=names, help="repeatable (default: all)")
    parser.add_argument("--work", type=Path, default=Path(".cache/measured"), metavar="DIR")
    parser.add_argument("--plugins", type=Path, default=Path(".cache/native/lib"), metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE")


def plugin_in(folder: Path) -> Path:
    """Give the library for clang-22 and LLD 22."""
    return (folder / "policybridge-inliner-22.so").absolute()


def measure_each(asked: argparse.Namespace, measure: Callable[[Package], T], told: Callable[[str, T], str]) -> int:
    """Measure the packages that `add_options` names, print and write them; the exit status is 1 if one fails."""
    recipes = read_recipes()
    measured, failed = {}, False
    for name in asked.package or asked.names:
        try:
            found = measure(Package(name, recipes[name], asked.work.absolute()))
        except PolicyBridgeError as error:
            failed = True
            sys.stderr.write(f"{name}: {error}\n")
            continue
        measured[name] = found
        print(told(name, found), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(msgspec.to_builtins(measured)), encoding="utf-8")
    return int(failed)


def main(words: Sequence[str] | None = None) -> int:
    """Measure packages and print them; the exit status is 1 if one fails, or 2 if the arguments are wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.measures.packages", description=__doc__)
    add_options(parser, [name for name, recipe in read_recipes().items() if recipe.count])
    parser.add_argument("--budget", type=int, default=16, metavar="N")
    asked = parser.parse_args(words)
    plugin = plugin_in(asked.plugins)
    return measure_each(asked, lambda package: Bench(package, plugin, asked.budget).measure(), _told)


def _told(name: str, found: Measured) -> str:
    text, file, instructions = (
        getattr(found.tuned, each) / getattr(found.plain, each) for each in ("text", "file", "instructions")
    )
    sizes = f"linked text {found.plain.text:,} -> {found.tuned.text:,} ({100 * (text - 1):+.2f} %)"
    more = f"file {100 * (file - 1):+.2f} %, instructions {instructions:.4f}; its tests passed"
    return f"{name} ({found.language}, {found.part}): {sizes}, {more}"


if __name__ == "__main__":
    sys.exit(main())

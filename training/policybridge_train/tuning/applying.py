"""What a search has won, and the lines that apply its store in the build's own words."""

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Final

from policybridge_client.llvm.launcher import find_launcher
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.lto import find_tool
from policybridge_train.tuning.build_folder import CMAKE_CACHE, BuildFolder, place_words
from policybridge_train.tuning.makefile import Makefile, configured_with, flags_behind
from policybridge_train.tuning.setup_script import anew, removed
from policybridge_train.tuning.tuned_compiler import LANGUAGES, TunedCompiler
from policybridge_train.tuning.unknown_build import cautions

_WITHOUT_VARIABLES: Final = ("ninja", "samu", "scons")
"""Programs that build without a look at CC in the environment."""


@dataclass(frozen=True)
class Ending:
    """Says at the end of a search what it has won, and how the store is applied.

    Attributes:
        tuned: the compiler with the store.
        build: the build's command; empty for a corpus.
        environment: in which it ran.

    """

    tuned: TunedCompiler
    build: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def lines(self, before: int, won: int, compiles: int) -> Iterator[str]:
        """Give the lines.

        Args:
            before: bytes of text under LLVM's own decisions.
            won: by how many bytes the best are smaller.
            compiles: that were used, those of earlier runs included.

        """
        tuned, name = self.tuned, self.tuned.compiler.name
        part = f" ({-100 * won / before:+.2f} %)" if won else ""
        yield f"won {won:,} of {before:,} bytes of text{part} by {compiles:,} compiles of {name}"
        if not won:
            return
        if self.build and not tuned.compilers.has(tuned.compiler):
            yield f"the build compiles with {tuned.compilers.named}; the store applies to {name} alone"
        yield from tuned.compilers.notes(lto=tuned.lto)
        yield f"apply {tuned.store}:"
        yield from (f"  {line}" for line in self.applying())

    def applying(self) -> Iterator[str]:
        """Give the commands that build with the store."""
        if not self.build:
            yield f"{self.tuned.starting('CC')} …"
            return
        if self.tuned.lto and not find_launcher(None):
            yield "# policybridge-run, which gives the store to the linker, has to be installed for this"
        program = Path(self.build[0]).name
        if program == "env" and (build := self.build[1 + len(_assignments(self.build)) :]):
            yield from self._with_environment(build)
            return
        if _compiles_with(self.build[0], self.tuned.compiler):
            yield f"{self.tuned.starting('CXX' if '++' in program else 'CC')} {shlex.join(self.build[1:])}"
            return
        folder = BuildFolder.of(self.build)
        yield from self._by_configured(folder)
        if folder.system == "cmake" or (program in ("cmake", "ninja") and Path("CMakeLists.txt").exists()):
            yield from self._by_cmake(folder)
        elif folder.system == "meson" or (program in ("meson", "ninja") and Path("meson.build").exists()):
            source = [] if folder.source == "." else [folder.source]
            setup = ["meson", "setup", *folder.settings, "tuned", *source]
            yield shlex.join(["env", *self._assigned(self.environment), *self._archiver, *setup])
            yield "ninja -C tuned"
        elif program in ("make", "gmake"):
            yield from self._by_make(folder)
        elif program in _WITHOUT_VARIABLES and not _told(self.build):
            yield f"# {program} takes its compilers from its files alone, so write there"
            yield from (f"{self.tuned.starting(name)} …" for name in self.tuned.variables)
        else:
            yield from self._by_another()
            yield from self._by_configure()

    def _with_environment(self, build: Sequence[str]) -> Iterator[str]:
        """Give the commands for a build that ``env`` starts, whose compilers would replace those of the lines."""
        assigned = dict(word.split("=", 1) for word in _assignments(self.build))
        kept = [f"{name}={value}" for name, value in assigned.items() if name not in self.tuned.variables]
        for line in replace(self, build=build, environment={**self.environment, **assigned}).applying():
            yield f"{shlex.join(['env', *kept])} {line}" if kept and not line.startswith(("#", "or: ")) else line

    def _by_another(self) -> Iterator[str]:
        """Give the commands for a program that may take its compilers from its words (``CC=…``) or the environment."""
        told = _told(self.build)
        cleaned, again = [*removed(self.build)], anew(self.build)
        yield from cleaned
        if not cleaned and again == [*self.build]:
            yield from cautions(self.build, {**self.environment, **told}, self.tuned)
        assigned = {word.partition("=")[0]: word for word in self._assigned({**self.environment, **told})}
        words = [assigned.get(word.partition("=")[0], word) if "=" in word else word for word in again]
        setting = [word for name, word in assigned.items() if name not in told]
        yield shlex.join([*(["env", *setting] if setting else ()), *words])

    def _assigned(self, named: Mapping[str, str]) -> list[str]:
        """Give the assignments of the compilers, each with what follows it where it was named."""
        names = self.tuned.variables
        return self.tuned.with_flags(
            {name: flags_behind(self.tuned.driver(name), named.get(name, "")) for name in names}
        )

    @property
    def _archiver(self) -> Sequence[str]:
        """The archiver for bitcode: Meson takes any ``llvm-ar``, and one of an older LLVM refuses the objects."""
        is_open = self.tuned.lto and "AR" not in self.environment
        archiver = find_tool(self.tuned.compiler, "ar") if is_open else None
        return [f"AR={archiver}"] if archiver else []

    def _by_make(self, folder: BuildFolder) -> Iterator[str]:
        """Give the commands that make all of it again, whatever is up to date.

        The makefile of a configure script has rules for itself and the script. ``-B`` would follow these, too. That of
        a Perl module has one for itself, which ends the build, and its ``clean`` takes the makefile away.
        """
        words = [word for word in self.build[1:] if word.partition("=")[0] not in ("-B", *self.tuned.variables)]
        if self.tuned.lto and Path(folder.path, "libtool").is_file():
            yield from self._by_libtool(words, folder)
            return
        makefile = Makefile.of(self.build, folder.path)
        whole = ["-B", "-o", makefile.name] if makefile.makes_itself else ["-B"]
        if folder.system == "configure":
            yield shlex.join([self.build[0], *place_words(self.build), "clean"])
            whole = []
        # A variable of the command replaces the makefile's, with the flags behind the compiler there.
        flags = {
            name: makefile.flags(self.build, self.environment, name, self.tuned.driver(name))
            for name in self.tuned.variables
        }
        yield shlex.join([self.build[0], *whole, *words, *self.tuned.with_flags(flags)])
        yield from self._by_configure()

    def _by_libtool(self, words: Sequence[str], folder: BuildFolder) -> Iterator[str]:
        """Give the commands for libtool: it links a library by the compiler that its folder was configured with.

        It reads the names in the objects, too, which of bitcode only LLVM's own tools can.
        """
        tools = {name.upper(): find_tool(self.tuned.compiler, name) for name in ("ar", "nm", "ranlib")}
        assigned = [f"{name}={tool}" for name, tool in tools.items() if tool]
        configuring = [*self._configuring(assigned)] if folder.path == "." else []
        yield from configuring
        if not configuring:
            given = shlex.join([*assigned, *self._assigned({})])
            yield f"# libtool links by the compiler of its configure script, so run that again, with {given}"
        yield shlex.join([self.build[0], *place_words(self.build), "clean"])
        yield shlex.join([self.build[0], *words])

    def _by_configure(self) -> Iterator[str]:
        yield from (f"or: {line}" for line in self._configuring())

    def _configuring(self, tools: Sequence[str] = ()) -> Iterator[str]:
        if Path("configure").exists():
            told = {word: word.partition("=") for word in configured_with(Path())}
            named = {name: value for name, _, value in told.values() if name in self.tuned.variables}
            kept = [word for word, (name, _, _) in told.items() if name not in named]
            added = [word for word in tools if word.partition("=")[0] not in [name for name, *_ in told.values()]]
            yield shlex.join(["./configure", *kept, *added, *self._assigned(named)])

    def _by_cmake(self, folder: BuildFolder) -> Iterator[str]:
        """Give the commands for CMake.

        The build's folder is configured again if its compiler stays, because its options are kept there alone; another
        compiler would make CMake forget them.
        """
        is_known = folder.system == "cmake"
        if is_known and self._keeps_folders:
            yield from self._configured_again(folder.path)
        else:
            source, kept = (folder.source, folder.settings) if is_known else (".", [])
            yield shlex.join(["cmake", "-S", source, "-B", "tuned", *kept, *self._cmake_compilers()])
            yield "cmake --build tuned"

    def _by_configured(self, own: BuildFolder) -> Iterator[str]:
        """Give the commands for folders that CMake configured within the build, as ExternalProject does."""
        main = Path(own.path).resolve() if own.system in ("cmake", "meson") else None
        others = [os.path.relpath(each) for each in self.tuned.compilers.configured if each != main]
        kept = [each for each in others if not self._keeps_folders or not Path(each, CMAKE_CACHE).is_file()]
        if kept:
            yield f"# {' and '.join(kept)} keeps the compiler with which it was configured: remove it first"
        yield from (line for each in others if each not in kept for line in self._configured_again(each))

    @property
    def _keeps_folders(self) -> bool:
        """Whether CMake's folders keep their compilers, and get the launcher."""
        tuned = self.tuned
        return bool(tuned.launching) and not tuned.lto and tuned.compilers.has(tuned.compiler)

    def _configured_again(self, folder: str) -> Iterator[str]:
        yield shlex.join(["cmake", folder, *self._cmake_launchers()])
        yield shlex.join(["cmake", "--build", folder, "--clean-first"])

    def _cmake_compilers(self) -> Iterator[str]:
        for name, variable in LANGUAGES.items():
            if variable in self.tuned.variables:
                yield f"-DCMAKE_{name}_COMPILER={';'.join(self.tuned.words(variable))}"
        yield from self._cmake_launchers()

    def _cmake_launchers(self) -> Iterator[str]:
        for name, variable in LANGUAGES.items():
            if variable in self.tuned.variables:
                for launched in ("COMPILER", "LINKER")[: 2 if self.tuned.lto else 1 if self.tuned.launching else 0]:
                    yield f"-DCMAKE_{name}_{launched}_LAUNCHER={';'.join(self.tuned.launching)}"


def _assignments(build: Sequence[str]) -> list[str]:
    """Give the variables that ``env`` sets."""
    return list(takewhile(lambda word: "=" in word and not word.startswith("-"), build[1:]))


def _told(build: Sequence[str]) -> dict[str, str]:
    """Give the compilers that a build's own words name, as those of make, SCons and LuaRocks do (``CC=clang``)."""
    words = (word.partition("=") for word in build[1:])
    return {name: value for name, _, value in words if name in LANGUAGES.values()}


def _compiles_with(program: str, compiler: Compiler) -> bool:
    """Tell whether the build is one command of the compiler."""
    found, own = (shutil.which(each) for each in (program, compiler.name))
    return bool(found and own and Path(found).name.replace("++", "") == Path(own).name.replace("++", ""))

"""What a search has won, and the lines that apply its store in the build's own words."""

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Final

from policybridge_client.decisions.finding import NAME, find_store
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.launcher import find_launcher
from policybridge_client.llvm.plugins import loads_early
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.lto import Mode
from policybridge_train.tuning.build_folder import BuildFolder, place_words
from policybridge_train.tuning.compilers import BuildCompilers
from policybridge_train.tuning.makefile import Makefile, configured_with, flags_behind

_LANGUAGES: Final = {"C": "CC", "CXX": "CXX"}
_LAUNCHER: Final = "policybridge-run"
_WITHOUT_VARIABLES: Final = ("ninja", "samu", "scons")
"""Programs that build without a look at CC in the environment."""
_SETUP: Final = "setup.py"
_FORCED: Final = ("build", "build_clib", "build_ext")
"""Commands of setuptools that compile; all others that do so run the first."""


@dataclass(frozen=True)
class Ending:
    """Says at the end of a search what it has won, and how the store is applied.

    Attributes:
        store: the file.
        compiler: the one that was tuned.
        build: the build's command; empty for a corpus.
        compilers: the build's compilers.
        plugins: the folder of plugins, if it was given.
        lto: the kind of link-time optimisation that was tuned.
        plugin: with which it was tuned. Without a launcher the compiler loads it.

    """

    store: Path
    compiler: Compiler
    build: Sequence[str]
    compilers: BuildCompilers
    plugins: Path | None = None
    lto: Mode | None = None
    plugin: Path | None = None

    def lines(self, before: int, won: int, compiles: int) -> Iterator[str]:
        """Give the lines.

        Args:
            before: bytes of text under LLVM's own decisions.
            won: by how many bytes the best are smaller.
            compiles: that were used, those of earlier runs included.

        """
        part = f" ({-100 * won / before:+.2f} %)" if won else ""
        yield f"won {won:,} of {before:,} bytes of text{part} by {compiles:,} compiles of {self.compiler.name}"
        if not won:
            return
        if self.build and not self.compilers.has(self.compiler):
            yield f"the build compiles with {self.compilers.named}; the store applies to {self.compiler.name} alone"
        yield from self.compilers.notes(lto=bool(self.lto))
        yield f"apply {self.store}:"
        yield from (f"  {line}" for line in self.applying())

    def applying(self) -> Iterator[str]:
        """Give the commands that build with the store."""
        if not self.build:
            yield f"{self._starting('CC')} …"
            return
        if self.lto and not find_launcher(None):
            yield "# policybridge-run, which gives the store to the linker, has to be installed for this"
        program = Path(self.build[0]).name
        if program == "env" and (build := self.build[1 + len(_assignments(self.build)) :]):
            yield from self._with_environment(build)
            return
        if _compiles_with(self.build[0], self.compiler):
            yield f"{self._starting('CXX' if '++' in program else 'CC')} {shlex.join(self.build[1:])}"
            return
        folder = BuildFolder.of(self.build)
        if folder.system == "cmake" or (program in ("cmake", "ninja") and Path("CMakeLists.txt").exists()):
            yield from self._by_cmake(folder)
        elif folder.system == "meson" or (program in ("meson", "ninja") and Path("meson.build").exists()):
            source = [] if folder.source == "." else [folder.source]
            yield f"env {self._assigned} {shlex.join(['meson', 'setup', *folder.settings, 'tuned', *source])}"
            yield "ninja -C tuned"
        elif program in ("make", "gmake"):
            yield from self._by_make(folder)
        elif program in _WITHOUT_VARIABLES:
            yield f"# {program} takes its compilers from its files alone, so write there"
            yield from (f"{self._starting(name)} …" for name in self._variables)
        else:
            yield from _removed(self.build)
            yield f"env {self._assigned} {shlex.join(_anew(self.build))}"
            yield from self._by_configure()

    def _with_environment(self, build: Sequence[str]) -> Iterator[str]:
        """Give the commands for a build that ``env`` starts, whose compilers would replace those of the lines."""
        kept = [word for word in _assignments(self.build) if word.partition("=")[0] not in _LANGUAGES.values()]
        for line in replace(self, build=build).applying():
            yield f"{shlex.join(['env', *kept])} {line}" if kept and not line.startswith(("#", "or: ")) else line

    @property
    def _assigned(self) -> str:
        return " ".join(shlex.quote(f"{name}={self._starting(name)}") for name in self._variables)

    @property
    def _variables(self) -> Sequence[str]:
        languages = self.compilers
        return [*(["CC"] if languages.has_c else []), *(["CXX"] if languages.has_cxx else [])]

    def _by_make(self, folder: BuildFolder) -> Iterator[str]:
        """Give the commands that make all of it again, whatever is up to date.

        The makefile of a configure script has rules for itself and the script. ``-B`` would follow these, too. That of
        a Perl module has one for itself, which ends the build, and its ``clean`` takes the makefile away.
        """
        words = [word for word in self.build[1:] if word.partition("=")[0] not in ("-B", "CC", "CXX")]
        makefile = Makefile.of(self.build, folder.path)
        whole = ["-B", "-o", makefile.name] if makefile.makes_itself else ["-B"]
        if folder.system == "configure":
            yield shlex.join([self.build[0], *place_words(self.build), "clean"])
            whole = []
        # A variable of the command replaces the makefile's, with the flags behind the compiler there.
        flags = {name: makefile.flags(self.build, name, self._driver(name)) for name in self._variables}
        yield shlex.join([self.build[0], *whole, *words, *self._with_flags(flags)])
        yield from self._by_configure()

    def _by_configure(self) -> Iterator[str]:
        if Path("configure").exists():
            told = {word: word.partition("=") for word in configured_with(Path())}
            named = {name: value for name, _, value in told.values() if name in _LANGUAGES.values()}
            flags = {name: flags_behind(self._driver(name), named.get(name, "")) for name in self._variables}
            kept = [word for word, (name, _, _) in told.items() if name not in named]
            yield f"or: {shlex.join(['./configure', *kept, *self._with_flags(flags)])}"

    def _with_flags(self, flags: Mapping[str, str]) -> list[str]:
        """Give the assignments of the compilers, each with its flags, which the shell does not split."""
        return [f"{name}={self._starting(name)} {its}".rstrip() for name, its in flags.items()]

    def _by_cmake(self, folder: BuildFolder) -> Iterator[str]:
        """Give the commands for CMake.

        The build's folder is configured again if its compiler stays, because its options are kept there alone; another
        compiler would make CMake forget them.
        """
        is_known = folder.system == "cmake"
        if is_known and self._launching and not self.lto and self.compilers.has(self.compiler):
            yield shlex.join(["cmake", folder.path, *self._cmake_launchers()])
            yield shlex.join(["cmake", "--build", folder.path, "--clean-first"])
        else:
            source, kept = (folder.source, folder.settings) if is_known else (".", [])
            yield shlex.join(["cmake", "-S", source, "-B", "tuned", *kept, *self._cmake_compilers()])
            yield "cmake --build tuned"

    def _cmake_compilers(self) -> Iterator[str]:
        for name, variable in _LANGUAGES.items():
            if variable in self._variables:
                yield f"-DCMAKE_{name}_COMPILER={';'.join(self._compiler(variable))}"
        yield from self._cmake_launchers()

    def _cmake_launchers(self) -> Iterator[str]:
        for name, variable in _LANGUAGES.items():
            if variable in self._variables:
                for launched in ("COMPILER", "LINKER")[: 2 if self.lto else 1 if self._launching else 0]:
                    yield f"-DCMAKE_{name}_{launched}_LAUNCHER={';'.join(self._launching)}"

    def _starting(self, variable: str) -> str:
        return shlex.join([*self._launching, *self._compiler(variable)])

    def _compiler(self, variable: str) -> Sequence[str]:
        """Give the compiler's words, with the plugin where no launcher loads it."""
        words = [*self._driver(variable).split(" "), *self._at_link]
        if not self._is_loaded:
            return words
        command = CompilerCommand.of(words)
        flags = [f"-policybridge-decisions={store}" for store in self._given]
        return command.with_plugin(str(self.plugin), flags, early=loads_early(command))

    @property
    def _is_loaded(self) -> bool:
        """Whether the compiler is told to load the plugin."""
        return bool(self.plugin) and not self.lto and not find_launcher(None)

    @property
    def _given(self) -> Sequence[Path]:
        """The store, unless every compilation finds it by itself."""
        store = self.store.absolute()
        return [] if all(_finds(folder, store) for folder in self.compilers.folders or {store.parent}) else [store]

    @property
    def _at_link(self) -> Sequence[str]:
        """The compiler's options for link-time optimisation; it calls those for links unused where it compiles."""
        if self.lto is None:
            return []
        # With more jobs ThinLTO sets no switches.
        mode = ["-flto"] if self.lto == "full" else ["-flto=thin", "-flto-jobs=1"]
        return [*mode, "-fuse-ld=lld", "-Wno-unused-command-line-argument"]

    def _driver(self, variable: str) -> str:
        """Name the compiler of C or C++."""
        if self.compiler.name == "zig":
            return "zig cc" if variable == "CC" else "zig c++"
        file = Path(self.compiler.name)
        name = file.name if variable == "CC" or "clang++" in file.name else file.name.replace("clang", "clang++")
        return str(file.with_name(name))

    @property
    def _launching(self) -> Sequence[str]:
        """The words before the compiler's."""
        if self._is_loaded:
            return []
        launcher = find_launcher(None)
        words = ["policybridge", "run"] if launcher is None else [_named(launcher)]
        given = [word for store in self._given for word in ("--decisions", str(store))]
        plugins = [] if self.plugins is None else ["--plugins", str(self.plugins.absolute())]
        return [*words, *given, *plugins, "--"]


def _assignments(build: Sequence[str]) -> list[str]:
    """Give the variables that ``env`` sets."""
    return list(takewhile(lambda word: "=" in word and not word.startswith("-"), build[1:]))


def _script(build: Sequence[str]) -> int | None:
    return next((index for index, word in enumerate(build) if Path(word).name == _SETUP), None)


def _removed(build: Sequence[str]) -> Iterator[str]:
    """Remove what setuptools takes for up to date, where another program starts it that cannot tell it (pip)."""
    made = sorted(map(str, Path().glob("build/lib.*-*")))
    if made and _script(build) is None and (Path(_SETUP).exists() or Path("pyproject.toml").exists()):
        yield shlex.join(["rm", "-r", *made])


def _anew(build: Sequence[str]) -> list[str]:
    """Let a setup.py compile again; it takes an extension for up to date that is newer than its sources."""
    words, script = list(build), _script(build)
    if script is None:
        return words
    given = next((index for index, word in enumerate(words) if index > script and word in _FORCED), None)
    if given is None:
        return [*words[: script + 1], "build", "--force", *words[script + 1 :]]
    return [*words[: given + 1], "--force", *words[given + 1 :]]


def _finds(folder: Path, store: Path) -> bool:
    """Tell whether a compilation of a source in a folder finds a store by itself."""
    found = find_store(folder / "source.c") if store.name == NAME else None
    return bool(found and not found.refused and found.path == store.parent.resolve() / NAME)


def _named(launcher: str) -> str:
    """Give the launcher's name, if PATH has this one: another may be of another version."""
    on_path = shutil.which(_LAUNCHER)
    return _LAUNCHER if on_path and Path(on_path).samefile(launcher) else launcher


def _compiles_with(program: str, compiler: Compiler) -> bool:
    """Tell whether the build is one command of the compiler."""
    found, own = (shutil.which(each) for each in (program, compiler.name))
    return bool(found and own and Path(found).name.replace("++", "") == Path(own).name.replace("++", ""))

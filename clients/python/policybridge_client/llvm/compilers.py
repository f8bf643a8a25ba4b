"""The compiler in a command, its source and its output; and adding LLVM's flags to the command."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import dropwhile, pairwise
from pathlib import Path, PurePath
from typing import Final

from policybridge_client.decisions.text import Level
from policybridge_client.llvm.languages import BY_OPTION
from policybridge_core.errors import InvalidError


class Kind(Enum):
    """The kinds of compilers: each takes LLVM's flags in its own way."""

    CLANG = "clang"
    CC1 = "clang -cc1"
    ZIG = "zig cc"
    OPT = "opt"
    LLC = "llc"


_NAMES: Final = {
    Kind.CLANG: re.compile(r"(.+-)?clang(\+\+)?(-[\d.]+)?"),
    Kind.OPT: re.compile(r"(.+-)?opt(-[\d.]+)?"),
    Kind.LLC: re.compile(r"(.+-)?llc(-[\d.]+)?"),
}
_ZIG: Final = re.compile(r"zig|python-zig")
_ZIG_WORD: Final = re.compile(r"zig|python-zig|ziglang")
_PYTHON: Final = re.compile(r"python[\d.]*")

_BUILDS: Final = frozenset(("bmake", "gmake", "make", "meson", "ninja", "samu", "scons"))

_SOURCES: Final = frozenset([
    ".c", ".cc", ".cp", ".cpp", ".cxx", ".c++", ".C", ".CC", ".CPP", ".CXX", ".ccm", ".cppm", ".cxxm", ".c++m", ".ixx",
    ".i", ".ii", ".iim", ".mi", ".mii", ".m", ".mm", ".M", ".f", ".f90", ".cu", ".hip", ".cl", ".ll", ".bc",
])  # fmt: skip
"""Suffixes of sources for clang, opt and llc."""

_WITH_WORD: Final = frozenset([
    "-o", "--o", "-x", "-I", "-L", "-D", "-U", "-l", "-T", "-u", "-z", "-e", "-F", "-B", "-MF", "-MT", "-MQ", "-MJ",
    "-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-isysroot", "-iprefix", "-include-pch", "-target",
    "-arch", "-framework", "-rpath", "-soname", "-dumpdir", "-Xclang", "-Xlinker", "-Xassembler", "-Xpreprocessor",
    "-mllvm", "-mthread-model", "-serialize-diagnostics", "--serialize-diagnostics", "--param", "--sysroot",
])  # fmt: skip
"""Options whose value is the next word."""

_LTO: Final = re.compile(r"-flto(=.*)?|-fno-lto")
# How the names of files and folders of trials begin.
_TRIALS: Final = ("conftest", "conftstm", "cmTC_", "meson-private", "conf_check_", "ztest", "gcctest")
_ONE_OBJECT: Final = ("-S", "-c")
_NO_OBJECT: Final = frozenset(["-E", "-M", "-MM", "-fsyntax-only", "-###", "--version", "--help", "-v", "--analyze"])


@dataclass(frozen=True)
class CompilerCommand:
    """A compiler's command in two parts: the words that start it, wrappers included, and its arguments."""

    kind: Kind
    start: tuple[str, ...]
    arguments: tuple[str, ...]

    @classmethod
    def of(cls, command: Sequence[str]) -> "CompilerCommand":
        """Find the compiler in a command; wrappers such as ``ccache`` may precede it.

        Raises:
            InvalidError: no word before the first option names a known compiler.

        """
        for index, word in enumerate(command):
            recognised = _recognise(command[index:])
            if recognised:
                kind, length = recognised
                return cls(kind, tuple(command[: index + length]), tuple(command[index + length :]))
            if word.startswith("-"):
                break
        wrong = "there is no compiler: give its command behind --"
        if command:
            wrong = f"no compiler that asks is started by {' '.join(command[:3])!r}"
        raise InvalidError(
            f"{wrong}; known are clang, clang++, opt and llc (also with a "
            "target before and a version after the name), zig cc, zig c++, python -m ziglang cc, and any of them "
            "behind a wrapper such as ccache"
        )

    @property
    def words(self) -> list[str]:
        """The whole command."""
        return [*self.start, *self.arguments]

    def with_flags(self, flags: Sequence[str], frontend: Sequence[str] = ()) -> list[str]:
        """Return the command with LLVM's ``flags`` added; flags that are already in the command stay as they are.

        ``frontend`` are words for ``clang -cc1``, or for opt.
        """
        given = {_flag_name(argument) for argument in self.arguments}
        wanted = [flag for flag in flags if _flag_name(flag) not in given]
        if self.kind is Kind.CC1:
            # clang recognises -cc1 only as its first argument.
            return [*self.start, self.arguments[0], *self._passed(wanted), *frontend, *self.arguments[1:]]
        return [*self.start, *self._quiet([*self._passed(wanted), *self._to_frontend(frontend)]), *self.arguments]

    def with_plugin(self, plugin: str, flags: Sequence[str], *, early: bool) -> list[str]:
        """Return the command with a plugin of LLVM's passes loaded, and the plugin's ``flags`` added.

        ``early`` is for LLVM before 22: its clang reads the flags before it loads such plugins, so that the plugin is
        also loaded as one of clang's own.
        """
        if self.kind is Kind.OPT:
            return [*self.start, f"-load-pass-plugin={plugin}", *flags, *self.arguments]
        if self.kind is Kind.CC1:
            loading = [*(["-load", plugin] if early else []), f"-fpass-plugin={plugin}"]
            return [*self.start, self.arguments[0], *loading, *self._passed(list(flags)), *self.arguments[1:]]
        loading = [*([f"-fplugin={plugin}"] if early else []), f"-fpass-plugin={plugin}"]
        return [*self.start, *self._quiet([*loading, *self._passed(list(flags))]), *self.arguments]

    def _quiet(self, words: list[str]) -> list[str]:
        # Without these, a command that only links or preprocesses warns of unused flags, or fails under -Werror.
        return (
            ["--start-no-unused-arguments", *words, "--end-no-unused-arguments"] if self.kind is Kind.CLANG else words
        )

    def _passed(self, flags: list[str]) -> list[str]:
        if self.kind in (Kind.OPT, Kind.LLC):
            return flags
        passed = [word for flag in flags for word in ("-mllvm", flag)]
        return self._to_frontend(passed) if self.kind is Kind.CLANG and self._may_refuse_mllvm else passed

    def _to_frontend(self, words: Sequence[str]) -> list[str]:
        if self.kind in (Kind.OPT, Kind.LLC):
            return list(words)
        return [part for word in words for part in ("-Xclang", word)]

    @property
    def _may_refuse_mllvm(self) -> bool:
        # clang refuses -mllvm with -fembed-bitcode. A response file may hold that option too.
        return any(word.startswith(("-fembed-bitcode", "@")) for word in self.arguments)

    @property
    def is_zig(self) -> bool:
        """Whether it is zig's clang, which loads no plugins."""
        return self.kind is Kind.ZIG or (
            len(self.start) > 1 and _ZIG_WORD.fullmatch(Path(self.start[-2]).name) is not None
        )

    @property
    def size_level(self) -> bool:
        """Whether the command compiles at LLVM's -Oz; zig turns its own -Oz into -Os, except after -Xclang."""
        if self.kind is Kind.OPT:
            return any("default<Oz>" in argument or argument in ("-Oz", "--Oz") for argument in self.arguments)
        words = pairwise(["", *self.arguments])
        own = self.kind is not Kind.ZIG
        levels = [word for before, word in words if word.startswith("-O") and (own or before == "-Xclang")]
        return self.kind is not Kind.LLC and levels[-1:] == ["-Oz"]

    @property
    def level(self) -> Level:
        """The level, as far as the words tell; zig's -Oz is -Os."""
        if self.size_level:
            return "Oz"
        if self.kind is Kind.OPT and any("default<Os>" in word for word in self.arguments):
            return "Os"
        levels = [word for word in self.arguments if word.startswith(("-O", "--O"))]
        return "Os" if levels and levels[-1].lstrip("-") in ("Os", "Oz") else "O2"

    @property
    def is_thinlto_backend(self) -> bool:
        """Whether clang generates one module's code of a distributed ThinLTO build (``-fthinlto-index``).

        With an empty index it compiles as usual.
        """
        option = "-fthinlto-index="
        index = [word.removeprefix(option) for word in self.arguments if word.startswith(option)]
        try:
            return self.kind is Kind.CLANG and bool(index) and Path(index[-1]).stat().st_size > 0
        except OSError:
            return False

    @property
    def links_with_lto(self) -> bool:
        """Whether clang starts a linker that optimises the program, as far as the words tell."""
        lto = [word for word in self.arguments if _LTO.fullmatch(word)]
        stops = {*_ONE_OBJECT, *_NO_OBJECT} - {"-v"}
        is_asked = self.kind is Kind.CLANG and lto[-1:] not in ([], ["-fno-lto"])
        return is_asked and not stops & {*self.arguments} and any(map(_is_input, self.arguments))

    @property
    def repeatable(self) -> bool:
        """Whether the command can be run again: it neither reads stdin nor writes to stdout."""
        if {"-", "-o-", "-o=-", "--o=-"} & set(self.arguments):
            return False
        if self.kind in (Kind.CLANG, Kind.CC1, Kind.ZIG):
            return True
        reads_file = any(Path(argument).is_file() for argument in self.arguments)
        writes_file = self.kind is Kind.LLC or bool(_opt_outputs(self.arguments))
        return reads_file and writes_file


def _opt_outputs(arguments: Sequence[str]) -> list[str]:
    names = ("-o", "--o", "-disable-output", "--disable-output")
    return [argument for argument in arguments if argument.split("=")[0] in names]


def _recognise(words: Sequence[str]) -> tuple[Kind, int] | None:
    name = Path(words[0]).name
    length = 1 if _ZIG.fullmatch(name) else 3 if _PYTHON.fullmatch(name) and words[1:3] == ["-m", "ziglang"] else 0
    if length and words[length : length + 1] in (["cc"], ["c++"]):
        return Kind.ZIG, length + 1
    kind: Kind | None = Kind.CLANG
    if length and words[length : length + 1] == ["clang"]:
        length += 1
    else:
        length, kind = 1, _by_name(name) or _by_name(_resolved_name(words[0]))
    if kind is Kind.CLANG and words[length : length + 1] == ["-cc1"]:
        kind = Kind.CC1
    return (kind, length) if kind else None


def is_compiler(name: str) -> bool:
    """Tell whether this file name is that of a compiler, not of a wrapper around one."""
    return _by_name(name) is not None or _ZIG.fullmatch(name) is not None


def _by_name(name: str) -> Kind | None:
    return next((kind for kind, pattern in _NAMES.items() if pattern.fullmatch(name)), None)


def _resolved_name(word: str) -> str:
    program = shutil.which(word)
    return Path(program).resolve().name if program else ""


def _flag_name(argument: str) -> str:
    return argument.partition("=")[0].lstrip("-")


def source_of(arguments: Sequence[str]) -> str:
    """Give the single source in a compiler's arguments; empty if there is no source, or several."""
    sources = sources_of(arguments)
    return sources[0] if len(sources) == 1 else ""


def is_trial(command: Sequence[str]) -> bool:
    """Tell whether a command only tries the compiler.

    It names a file of autoconf's, CMake's, Meson's, waf's, zlib's or Perl's trials, or ``/dev/null``. Many configure
    scripts take a line on standard error for a refusal.
    """
    words = [f"/{word}" for word in command if not word.startswith("-")]
    return "/dev/null" in command or any(f"/{name}" in word for word in words for name in _TRIALS)


def is_build(command: Sequence[str]) -> bool:
    """Tell whether a command starts a whole build, which starts the compilers itself."""
    words = dropwhile(lambda word: Path(word).name == "env" or "=" in word, command)
    return Path(next(words, "")).name in _BUILDS


def compiles(arguments: Sequence[str]) -> bool:
    """Tell whether the arguments have a source; false if the command only links, or prints a version."""
    return bool(sources_of(arguments)) or any(word in ("-", "-x") or word.startswith(("@", "-x")) for word in arguments)


def sources_of(arguments: Sequence[str]) -> list[str]:
    """Give the sources in a compiler's arguments."""
    sources, language = [], ""
    for before, word in pairwise(["", *arguments]):
        if before == "-x":
            language = word
        elif before in _WITH_WORD:
            continue
        elif word.startswith("-x"):
            language = word[2:]
        elif _is_input(word) and (PurePath(word).suffix in _SOURCES or language in BY_OPTION):
            sources.append(word)
    return sources


def _is_input(word: str) -> bool:
    return word == "-" or word[:1] not in ("", "-")


def clang_output(arguments: Sequence[str]) -> str:
    """Give the file that clang writes for these arguments without ``-o``; empty if they do not determine one file."""
    words = set(arguments)
    source = source_of(arguments)
    if not source or words & _NO_OBJECT:
        return ""
    if not words & set(_ONE_OBJECT):
        return "a.out"
    kinds = (".ll", ".bc") if "-emit-llvm" in words else (".s", ".o")
    return f"{PurePath(source).stem}{kinds[0] if '-S' in words else kinds[1]}"

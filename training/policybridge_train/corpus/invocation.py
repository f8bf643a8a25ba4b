"""Command lines of compilers: which sources, which output, which flags still matter for another compiler."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final, Literal

from policybridge_train.corpus.notes import BuildCommand
from policybridge_train.corpus.wrappers import COMPILERS

Stage = Literal["compile", "link", "other"]

LANGUAGES: Final = {
    ".c": "c",
    ".i": "cpp-output",
    ".ii": "c++-cpp-output",
    ".m": "objective-c",
    ".mm": "objective-c++",
    ".M": "objective-c++",
    **dict.fromkeys((".cc", ".cp", ".cpp", ".cxx", ".c++", ".CPP", ".C"), "c++"),
    **dict.fromkeys((".ccm", ".cppm", ".cxxm", ".c++m"), "c++-module"),
    ".pcm": "pcm",
}
"""Of a source by its ending (gcc's manual, Overall Options; clang/include/clang/Driver/Types.def).

A precompiled module of C++20 is compiled to an object as a source is.
"""

_OTHER_STAGES: Final = frozenset(
    (
        *("-E", "-S", "-M", "-MM", "-fsyntax-only", "--version", "-###", "-V", "--help"),
        *("--precompile", "--analyze", "-emit-ast", "-emit-interface-stubs", "-extract-api", "-verify-pch"),
    )
)
_SHORT: Final = {
    "--assemble": "-S",
    "--compile": "-c",
    "--define-macro": "-D",
    "--dependencies": "-M",
    "--imacros": "-imacros",
    "--include": "-include",
    "--include-directory": "-I",
    "--include-directory-after": "-idirafter",
    "--language": "-x",
    "--library-directory": "-L",
    "--output": "-o",
    "--prefix": "-B",
    "--preprocess": "-E",
    "--shared": "-shared",
    "--static": "-static",
    "--undefine-macro": "-U",
    "--user-dependencies": "-MM",
}
"""Long names of options, with their value behind ``=`` or in the next word, that gcc and clang both know."""

# Options whose value is the next word. All others have their value in the same word, or none. An option that lost its
# value would take the next flag for it, such as a level of optimisation or an output file.
_DROPPED_WITH_VALUE: Final = frozenset(
    (
        *("-MF", "-MT", "-MQ", "-MJ", "-dumpbase", "-dumpbase-ext", "-dumpdir", "-aux-info", "-B", "-wrapper"),
        *("-serialize-diagnostics", "--serialize-diagnostics", "-gen-cdb-fragment-path", "-module-dependency-dir"),
        *("-dependency-file", "-dependency-dot", "-index-store-path", "-Xanalyzer", "--analyzer-output"),
    )
)
_LINKED_WITH_VALUE: Final = frozenset(("-Xlinker", "-T", "-u", "-z", "-e", "-l", "-L", "-R", "-rpath", "-soname"))
_KEPT_WITH_VALUE: Final = frozenset(
    (
        *("-I", "-D", "-U", "-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-iprefix", "-iwithprefix"),
        *("-iwithprefixbefore", "-isysroot", "-imultilib", "-Xclang", "-Xpreprocessor", "-Xassembler", "-mllvm"),
        *("--param", "-arch", "-target", "--sysroot", "-A", "-F", "-iframework", "-iwithsysroot", "-cxx-isystem"),
        *("-isystem-after", "-stdlib++-isystem", "-ivfsoverlay", "-vfsoverlay", "-include-pch", "-resource-dir"),
        *("-working-directory", "-mthread-model", "-Xarch_host", "-Xarch_device", "-Xopenmp-target", "--config"),
    )
)
_DROPPED: Final = re.compile(
    r"-v|-M[DPGM]*|-M[FTQJ].+|-Wp,-M.*|-save-temps.*|-g.*|-f(no-)?lto.*|-ffat-lto-objects|-fuse-linker-plugin|-fplugin.*"
    r"|-fprofile-(generate|arcs|instr|dir|update|values|correction|partial).*|-ftest-coverage|--coverage|-pg|-p"
    r"|-W(?![apl],).*|-w|-pedantic(-errors)?|-fdiagnostics.*|-fdump-.*|-specs=.*|-fembed-bitcode.*|-pipe|-fno-diag.*"
    r"|-f(no-)?(color|show-column|message-length).*|-ftime-trace.*|-fmodules-ts|-fdeps-.*|-fmodule-mapper=.*"
)
_LINKED: Final = re.compile(
    r"-Wl,.*|-[lLR].+|-T.+|-shared|-static.*|-s|-rdynamic|-no-pie|-pie|-r|-nostdlib|-nodefaultlibs"
    r"|-nostartfiles|-fuse-ld=.*|-B.+"
)
_PROFILED: Final = re.compile(r"-f(?P<no>no-)?(profile(-instr|-sample)?-use|auto-profile)(=.*)?")
_OPTIMISED: Final = re.compile(r"-O.*")
_TARGET_WITH_VALUE: Final = frozenset(("-target", "-arch", "--sysroot", "-isysroot"))
_TARGETED: Final = re.compile(r"--target=.*|--sysroot=.*|-m.+")


@dataclass(frozen=True)
class Source:
    """A source file of a command, as it is written there, and its language for ``-x``."""

    word: str
    language: str

    @property
    def text(self) -> str:
        """The language that its text is in, before it was preprocessed or precompiled."""
        text = self.language.removesuffix("-cpp-output").replace("cpp-output", "c")
        return "c++" if text in ("c++-module", "pcm") else text


@dataclass(frozen=True)
class Invocation:
    """The parsed command line of a compiler.

    Attributes:
        command: the process.
        stage: ``compile`` to objects, ``link`` (sources that it compiles among its inputs), or ``other``.
        sources: of C, C++ and Objective-C.
        output: the word behind ``-o``, if there is one.
        flags: for the front end and the code generator, without inputs, outputs, warnings and levels of debugging.
        linking: the words that matter to a linker, in their order, sources among them.
        profiling: the flags that name a profile, or take one back (``-fprofile-use``).

    """

    command: BuildCommand
    stage: Stage
    sources: tuple[Source, ...]
    output: str | None
    flags: tuple[str, ...]
    linking: tuple[str, ...]
    profiling: tuple[str, ...] = ()

    @property
    def is_profiled(self) -> bool:
        """Whether the sources are optimised with a profile."""
        last = _PROFILED.fullmatch(self.profiling[-1]) if self.profiling else None
        return last is not None and not last["no"]

    @property
    def has_clangs_profile(self) -> bool:
        """Whether a clang can read the profile: GCC's have another format."""
        return self.is_profiled and "clang" in self.command.name

    def object_of(self, source: Source) -> Path:
        """Give the object file that a source is compiled to; where it is linked at once, one that nobody sees."""
        if self.stage == "link":
            return self.command.path(f"{self.output or 'a.out'}-{Path(source.word).name}")
        return self.command.path(self.output or f"{Path(source.word).stem}.o")


def parse_compiler(command: BuildCommand) -> Invocation | None:
    """Read the command line of a compiler; None, if the tool is none."""
    named = COMPILERS.fullmatch(command.name)
    if named is None:
        return None
    return _Reader(command, named["target"] or "", cxx="++" in command.name).read()


class _Reader:
    def __init__(self, command: BuildCommand, target: str, *, cxx: bool) -> None:
        self._command = command
        self._words: Iterator[str] = iter(command.arguments)
        self._cxx = cxx
        self._target = target.rstrip("-")
        self._language: str | None = None
        self._stage: Stage = "link"
        self._output: str | None = None
        self._sources: list[Source] = []
        self._flags: list[str] = []
        self._linking: list[str] = []
        self._profiling: list[str] = []

    def read(self) -> Invocation:
        for word in self._words:
            if word.startswith("-") and word != "-":
                self._option(word)
            else:
                self._input(word)
        target = [f"--target={self._target}"] if self._target.count("-") > 1 else []
        return Invocation(
            self._command,
            self._stage,
            tuple(self._sources),
            self._output,
            (*target, *self._flags),
            tuple(self._linking),
            tuple(self._profiling),
        )

    def _option(self, word: str) -> None:
        name, equals, value = word.partition("=")
        if name in _SHORT:
            word = _SHORT[name]
            self._words = chain([value], self._words) if equals else self._words
        if word == "-c":
            self._stage = "compile" if self._stage == "link" else self._stage
        elif word in _OTHER_STAGES:
            self._stage = "other"
        elif word == "-o" or (word.startswith("-o") and not word.startswith("-objc")):
            self._output = word[2:] or next(self._words, None)
        elif word == "-x" or (word.startswith("-x") and len(word) > 2):
            language = word[2:] or next(self._words, "none")
            self._language = None if language == "none" else language
        else:
            self._flag(word)

    def _flag(self, word: str) -> None:
        value = list(self._value(word))
        if word in _LINKED_WITH_VALUE or _LINKED.fullmatch(word):
            self._linking.extend([word, *value])
        elif _PROFILED.fullmatch(word):
            self._profiling.append(word)
        elif word not in _DROPPED_WITH_VALUE and not _DROPPED.fullmatch(word):
            self._flags.extend([word, *value])

    def _value(self, word: str) -> Iterator[str]:
        if word in _KEPT_WITH_VALUE or word in _LINKED_WITH_VALUE or word in _DROPPED_WITH_VALUE:
            value = next(self._words, None)
            if value is not None:
                yield value

    def _input(self, word: str) -> None:
        self._linking.append(word)
        language = self._language or LANGUAGES.get(Path(word).suffix)
        if language == "c" and self._cxx and self._language is None:
            language = "c++"
        if language in LANGUAGES.values() and word != "-":
            self._sources.append(Source(word, str(language)))


def without_level(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out the flags that choose how much is optimised."""
    return tuple(flag for flag in flags if not _OPTIMISED.fullmatch(flag))


def without_target(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out the flags that choose a machine: they are of the build's target, and wrong for another."""
    words = iter(flags)
    kept: list[str] = []
    for word in words:
        if word in _TARGET_WITH_VALUE:
            next(words, None)
        elif word in _KEPT_WITH_VALUE:
            kept += (word, *islice(words, 1))
        elif not _TARGETED.fullmatch(word):
            kept.append(word)
    return tuple(kept)

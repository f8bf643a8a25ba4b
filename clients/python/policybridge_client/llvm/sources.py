"""The source and the output of a compiler's command, as far as its words name them."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Final

_SOURCES: Final = frozenset([
    ".c", ".cc", ".cp", ".cpp", ".cxx", ".c++", ".C", ".CC", ".CPP", ".cppm", ".ixx", ".i", ".ii", ".mi", ".mii",
    ".m", ".mm", ".M", ".f", ".f90", ".cu", ".hip", ".cl", ".ll", ".bc",
])  # fmt: skip
"""Suffixes of sources for clang, opt and llc."""

_WITH_WORD: Final = frozenset([
    "-o", "--o", "-x", "-I", "-L", "-D", "-U", "-l", "-T", "-u", "-z", "-e", "-F", "-B", "-MF", "-MT", "-MQ", "-MJ",
    "-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-isysroot", "-iprefix", "-include-pch", "-target",
    "-arch", "-framework", "-rpath", "-soname", "-dumpdir", "-Xclang", "-Xlinker", "-Xassembler", "-Xpreprocessor",
    "-mllvm", "-mthread-model", "-serialize-diagnostics", "--serialize-diagnostics", "--param", "--sysroot",
])  # fmt: skip
"""Options whose value is the next word."""

_ONE_OBJECT: Final = ("-S", "-c")
_NO_OBJECT: Final = frozenset(["-E", "-M", "-MM", "-fsyntax-only", "-###", "--version", "--help", "-v", "--analyze"])


def source_of(arguments: Sequence[str]) -> str:
    """Give the single source in a compiler's arguments; empty if there is no source, or several."""
    sources = _sources(arguments)
    return sources[0] if len(sources) == 1 else ""


def compiles(arguments: Sequence[str]) -> bool:
    """Tell whether the arguments have a source; false if the command only links, or prints a version."""
    return bool(_sources(arguments)) or any(word in ("-", "-x") or word.startswith(("@", "-x")) for word in arguments)


def _sources(arguments: Sequence[str]) -> list[str]:
    words = [word for before, word in pairwise(["", *arguments]) if before not in _WITH_WORD]
    return [word for word in words if not word.startswith("-") and PurePath(word).suffix in _SOURCES]


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

"""The ways in which a source package may be built, the best first."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The objects only serve to generate sources and to be linked; the modules get a level of their own. A low one takes
# half the time, and still defines __OPTIMIZE__.
_QUICK: Final = "-O1"
_BUILD: Final = "policybridge-build"
"""The folder below the source in which CMake and Meson build."""


@dataclass(frozen=True)
class Attempt:
    """One way to build.

    Attributes:
        name: for the report.
        patched: whether Debian's patches are applied; they may need tools that only Debian's own build needs.
        commands: one after the other; the last may fail in parts.
        folder: in which they run, below the package's.

    """

    name: str
    patched: bool
    commands: tuple[tuple[str, ...], ...]
    folder: Path = Path()


def attempts(source: Path, options: Sequence[str]) -> Iterator[Attempt]:
    """Give the ways that the files of an unpacked package and this machine's tools allow; ``options`` are CMake's."""
    if not options and _has_tools(source):
        # -nc: the tree is fresh. -d: a missing dependency makes the build fail, and the report has a row for it.
        yield Attempt("debian", True, (("dpkg-buildpackage", "-d", "-nc", "-us", "-uc", "--target=build"),))
    for folder in _roots(source):
        yield from _upstream(source / folder, folder, options)


def _has_tools(source: Path) -> bool:
    rules = source / "debian" / "rules"
    if not rules.is_file() or shutil.which("dpkg-buildpackage") is None:
        return False
    uses_debhelper = "dh" in rules.read_text(encoding="utf-8", errors="replace").replace("$@", "").split()
    return not uses_debhelper or shutil.which("dh") is not None


def _roots(source: Path) -> Iterator[Path]:
    """Give the source's own folder, and those right below it, which some packages have instead."""
    yield Path()
    for child in sorted(source.iterdir()):
        if child.is_dir() and child.name not in ("debian", ".pc", "test", "tests", "doc", "docs", "examples"):
            yield Path(child.name)


def _upstream(source: Path, folder: Path, options: Sequence[str]) -> Iterator[Attempt]:
    for name, file, tool, commands in (
        ("cmake", "CMakeLists.txt", "cmake", _cmake(options)),
        ("configure", "configure", "make", _configure(options)),
        ("autoreconf", "configure.ac", "autoreconf", (("autoreconf", "-fi"), *_configure(options))),
        ("meson", "meson.build", "meson", (("meson", "setup", *options, _BUILD), ("ninja", "-k0", "-C", _BUILD))),
        ("make", "Makefile", "make", (("make", "-k", *(word for word in options if not word.startswith("-"))),)),
    ):
        if (source / file).is_file() and shutil.which(tool) is not None:
            yield Attempt(name, False, commands, folder)


def _cmake(options: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    settings = (
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_C_FLAGS_RELEASE={_QUICK} -DNDEBUG",
        f"-DCMAKE_CXX_FLAGS_RELEASE={_QUICK} -DNDEBUG",
        "-DBUILD_TESTING=OFF",
        # A build that fetches sources would not be the package's.
        "-DFETCHCONTENT_FULLY_DISCONNECTED=ON",
        *options,
    )
    make = ("cmake", "--build", _BUILD, "--", "-k")
    return (("cmake", "-S", ".", "-B", _BUILD, "-G", "Unix Makefiles", *settings), make)


def _configure(options: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    settings = ("CFLAGS=" + _QUICK, "CXXFLAGS=" + _QUICK)
    return (("env", *settings, "sh", "./configure", *options), ("make", "-k"))

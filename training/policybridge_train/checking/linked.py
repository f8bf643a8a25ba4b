"""The programs and libraries of a build, and their sizes by kind of section."""

import argparse
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import msgspec

from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_train.objects.elf import ObjectFile

Part = Literal["text", "code", "data", "file"]
PARTS: Final[tuple[Part, ...]] = ("text", "code", "data", "file")

_TYPE: Final = slice(16, 18)
_LINKED: Final = (b"\x02\x00", b"\x03\x00")
"""The types of ELF files that linkers make: programs and shared libraries."""
_START: Final = 64
_PROBES: Final = {"CMakeFiles", "meson-private"}
"""Folders in which CMake and Meson link programs that only try the compiler."""
_STRIPS: Final = ("llvm-strip", "strip")


class Sizes(msgspec.Struct, frozen=True):
    """Bytes of a stripped program or library.

    Attributes:
        text: loaded and not written: code, constants, tables.
        code: can be executed.
        data: loaded and written, ``.bss`` too.
        file: the file.

    """

    text: int
    code: int
    data: int
    file: int


def sizes_of(folder: Path) -> dict[str, Sizes]:
    """Give the sizes of each linked file below a folder, by its path there."""
    strips = [found for name in _STRIPS if (found := shutil.which(name))]
    if not strips:
        raise PreconditionError("there is no strip on PATH; install binutils or LLVM")
    with TemporaryDirectory() as name:
        copy = Path(name) / "stripped"
        return {str(path.relative_to(folder)): _sizes(path, strips, copy) for path in linked_files(folder)}


def linked_files(folder: Path) -> Iterator[Path]:
    """Give the programs and shared libraries below a folder, but for those that only tried a compiler."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _PROBES)
        for name in sorted(names):
            path = Path(parent) / name
            if path.is_file() and not path.is_symlink() and _is_linked(path):
                yield path


def _is_linked(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(_START)
    return start.startswith(b"\x7fELF") and start[_TYPE] in _LINKED


def _sizes(path: Path, strips: Sequence[str], copy: Path) -> Sizes:
    _strip(path, strips, copy)
    stripped = ObjectFile.read(copy)
    data = sum(stripped.loaded.values()) - stripped.text
    return Sizes(stripped.text, stripped.exec, data, copy.stat().st_size)


def _strip(path: Path, strips: Sequence[str], copy: Path) -> None:
    """Strip a file by the first program that can: LLVM's refuses static programs that GNU ld has linked with glibc."""
    failed = ""
    for strip in strips:
        done = subprocess.run([strip, "-o", copy, path], capture_output=True, text=True, check=False)
        if not done.returncode:
            return
        failed = failed or done.stderr.strip()
    raise InvalidError(f"{path} cannot be stripped: {failed}")


def percent(text: str) -> float:
    """Read an argument that is a percentage of growth."""
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more")
    return number

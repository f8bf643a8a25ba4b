"""Programs that print a checksum, and in which nothing is undefined, and modules of LLVM's that are only compiled."""

import random
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.native.llvm.differential.writing import Writer

CSMITH_INCLUDES: Final = Path("/usr/include/csmith")
_CSMITH: Final = (
    "--max-funcs",
    "3",
    "--max-block-size",
    "3",
    "--max-block-depth",
    "3",
    "--max-expr-complexity",
    "5",
    "--no-argc",
)
_BY_CSMITH: Final = re.compile(r"\bfunc_\d+\b")
_BY_STRESS: Final = re.compile(r"^define .*?@(\w+)\(", re.MULTILINE)
_CPP: Final = 0.2
"""The share of C++ in the programs of our generator."""


@dataclass(frozen=True)
class Program:
    """A source file.

    Attributes:
        path: of the file.
        functions: the names of those that it defines, as the object has them.
        runs: whether it has a main. Modules of llvm-stress have none.

    """

    path: Path
    functions: tuple[str, ...]
    runs: bool = True


def write_program(seed: int, folder: Path, major: str) -> Program | None:
    """Write the program of a seed; None if its generator does not end, as Csmith's of some seeds.

    Every eighth is Csmith's and every sixteenth a module of llvm-stress, where these are installed.
    """
    stress = f"llvm-stress-{major}"
    if seed % 16 == 15 and shutil.which(stress):
        return _write_module(stress, seed, folder / f"program{seed}.ll")
    if seed % 8 == 0 and shutil.which("csmith"):
        return _write_by_csmith(seed, folder / f"program{seed}.c")
    chance = random.Random(seed)
    writer = Writer(chance, is_cpp=chance.random() < _CPP)
    path = folder / f"program{seed}.{'cpp' if writer.is_cpp else 'c'}"
    path.write_text(writer.program())
    return Program(path, ("main", *writer.functions))


def _write_module(stress: str, seed: int, path: Path) -> Program | None:
    words = [stress, "-size", str(20 + 30 * (seed // 16 % 7)), "-seed", str(seed), "-o", str(path)]
    return Program(path, tuple(_BY_STRESS.findall(path.read_text())), runs=False) if _ends(words, path.parent) else None


def _write_by_csmith(seed: int, path: Path) -> Program | None:
    if not _ends(["csmith", *_CSMITH, "--seed", str(seed), "--output", str(path)], path.parent):
        return None
    functions = sorted(set(_BY_CSMITH.findall(path.read_text())))
    return Program(path, ("main", *functions, "transparent_crc", "crc32_byte"))


def _ends(words: list[str], folder: Path) -> bool:
    try:
        # In the folder, because Csmith writes another file, too.
        subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=20)
    except subprocess.TimeoutExpired:
        return False
    return True

"""One program at one level with choices of passes, beside the same program without optimisation."""

import random
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_client.decisions import Heading, Level, PassChoice, Section, Store, write_store
from tests.native.llvm.differential.choices import random_choices
from tests.native.llvm.differential.programs import CSMITH_INCLUDES, names, write_program

_LEVELS: Final[dict[str, Level]] = {"-Oz": "Oz", "-O2": "O2"}
_VERIFYING: Final = ("-Xclang", "-llvm-verify-each", "-mllvm", "-verify-machineinstrs")
_LONGEST: Final = 10
"""Seconds that an unoptimised program may run; one that runs longer is not compared."""


@dataclass(frozen=True)
class Compiler:
    """A clang and its plugin."""

    major: str
    plugin: Path
    folder: Path

    def run_plain(self, source: Path, *flags: str) -> str | None:
        """Compile without the plugin and run; give what the program prints, ``None`` if it runs too long."""
        return self._run(source, [*flags])

    def run_with(self, source: Path, flags: Sequence[str], choices: Sequence[PassChoice]) -> str | None:
        """Compile with the choices and run.

        Raises:
            subprocess.CalledProcessError: the compiler fails.

        """
        heading = Heading(int(self.major), _LEVELS[flags[0]], "site", None, source.name)
        store = self.folder / "choices.db"
        write_store(Store([Section(heading, (), tuple(choices))]), store)
        loading = [
            f"-fplugin={self.plugin}",
            f"-fpass-plugin={self.plugin}",
            "-mllvm",
            f"-policybridge-decisions={store}",
        ]
        return self._run(source, [*flags, *loading, "-mllvm", "-policybridge-fallback=error"])

    def _run(self, source: Path, flags: list[str]) -> str | None:
        program = self.folder / "program"
        words = [
            f"clang-{self.major}",
            "-w",
            "-fno-crash-diagnostics",
            f"-I{CSMITH_INCLUDES}",
            *flags,
            str(source),
            "-o",
            str(program),
        ]
        subprocess.run(words, cwd=self.folder, check=True, capture_output=True, timeout=300)
        try:
            done = subprocess.run([str(program)], capture_output=True, text=True, timeout=_LONGEST, check=False)
        except subprocess.TimeoutExpired:
            return None
        return f"{done.stdout}status {done.returncode}"


@dataclass(frozen=True)
class Disagreement:
    """A program that does something else with choices, and the fewest choices with which it does."""

    seed: int
    flags: tuple[str, ...]
    choices: Sequence[PassChoice]
    said: str

    def __str__(self) -> str:
        made = "; ".join(f"{each.function or 'all'}: {each.action} {each.name}" for each in self.choices)
        return f"seed {self.seed} {' '.join(self.flags)}: {made or 'no choices'}: {self.said}"


def compare(seed: int, major: str, plugin: Path, tries: int = 2) -> list[Disagreement]:
    """Compile the program of a seed with random choices, some times over; give the disagreements with -O0."""
    with TemporaryDirectory(prefix="policybridge-") as folder:
        compiler = Compiler(major, plugin, Path(folder))
        source = write_program(seed, compiler.folder)
        expected = compiler.run_plain(source, "-O0")
        if expected is None:
            return []
        chance = random.Random(seed)
        found = [_tried(compiler, source, seed, chance, expected) for _ in range(tries)]
        return [each for each in found if each]


def _tried(compiler: Compiler, source: Path, seed: int, chance: random.Random, expected: str) -> Disagreement | None:
    ways = [
        (),
        ("-fno-inline",),
        ("-g",),
        ("-fno-inline", "-march=haswell"),
        (*_VERIFYING,),
        ("-fno-inline", *_VERIFYING),
    ]
    flags = (chance.choice([*_LEVELS]), *chance.choice(ways))
    choices = random_choices(chance, names())

    def fault(tried: Sequence[PassChoice]) -> str:
        try:
            printed = compiler.run_with(source, flags, tried)
        except subprocess.CalledProcessError as error:
            return f"the compiler fails: {error.stderr.decode('utf-8', 'replace')[-400:]}"
        except subprocess.TimeoutExpired:
            # The outliner's time grows faster than a function's size; the object would be right.
            return ""
        return "" if printed == expected else f"{printed!r} is not {expected!r}"

    if not fault(choices):
        return None
    fewest = reduced(choices, lambda tried: bool(fault(tried)))
    return Disagreement(seed, flags, fewest, fault(fewest))


def reduced(choices: Sequence[PassChoice], fails: Callable[[Sequence[PassChoice]], bool]) -> list[PassChoice]:
    """Leave out choices, in ever smaller pieces, as long as it still ``fails``."""
    left = [*choices]
    size = max(1, len(left) // 2)
    while left:
        before = len(left)
        for begin in range(before - size, -size, -size):
            tried = left[: max(0, begin)] + left[max(0, begin + size) :]
            if len(tried) < len(left) and fails(tried):
                left = tried
        if size == 1 and len(left) == before:
            break
        size = max(1, size // 2)
    return left

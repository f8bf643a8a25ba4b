"""One program at both levels with choices of passes, beside the same program without optimisation."""

import random
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from policybridge_client.decisions import Heading, Level, PassChoice, Section, Store, write_store
from tests.native.llvm.differential.choices import random_choices
from tests.native.llvm.differential.programs import CSMITH_INCLUDES, Program, write_program
from tests.native.llvm.differential.resident import Done, Resident

LEVELS: Final[tuple[Level, ...]] = ("Oz", "O2")
_VERIFYING: Final = ("-Xclang", "-llvm-verify-each", "-mllvm", "-verify-machineinstrs")
_WAYS: Final[tuple[tuple[str, ...], ...]] = (
    (),
    ("-fno-inline",),
    ("-g",),
    ("-fno-inline", "-march=haswell"),
    ("-fno-inline", "-mcmodel=large"),
    ("-mretpoline", "-fcf-protection"),
    ("-fno-omit-frame-pointer", "-fzero-call-used-regs=all", "-fstack-clash-protection"),
    _VERIFYING,
    ("-fno-inline", *_VERIFYING),
)
_LINKER: Final = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()
"""The fastest for small programs."""
_COMPILE: Final = 20
"""Seconds of a compilation. A longer one is left out: the outliner's time grows faster than a function's size."""
_REFERENCE: Final = 1
"""Seconds that an unoptimised program may run. A longer one is left out."""
_RUN: Final = 10
"""Seconds that an optimised one may run. A longer one does something else."""


class TooLongError(Exception):
    """A compilation, or the unoptimised program, takes too long to be compared."""


@dataclass(frozen=True)
class Compiler:
    """A clang that stays, its plugin, and a folder of their own."""

    major: str
    plugin: Path
    folder: Path
    resident: Resident

    def print_plain(self, program: Program) -> str:
        """Compile without optimisation and run; give what the program prints.

        Raises:
            TooLongError: it runs too long.

        """
        return self._print(program, ["-O0"], _REFERENCE, is_limited=True)

    def print_with(self, program: Program, level: Level, way: Sequence[str], choices: Sequence[PassChoice]) -> str:
        """Compile with the choices and run; give what the program or the failing compiler prints.

        Raises:
            TooLongError: the compiler runs too long.

        """
        store = self.folder / "choices.db"
        heading = Heading(int(self.major), level, "site", None, program.path.name)
        write_store(Store([Section(heading, (), tuple(choices))]), store)
        loading = [f"-fplugin={self.plugin}", f"-fpass-plugin={self.plugin}"]
        options = [f"-policybridge-decisions={store}", "-policybridge-fallback=error"]
        words = [f"-{level}", *way, *loading, *(word for option in options for word in ("-mllvm", option))]
        return self._print(program, words, _RUN, is_limited=False)

    def _print(self, program: Program, flags: list[str], seconds: int, *, is_limited: bool) -> str:
        source = program.path.name
        words = ["-w", "-fno-crash-diagnostics", f"-I{CSMITH_INCLUDES}", *flags, "-c", source, "-o", "program.o"]
        compiled = self.resident.compile(words, _COMPILE)
        if compiled.is_too_long:
            raise TooLongError
        if compiled.status:
            return f"the compiler fails with {compiled.status}: {compiled.output[:2000]}"
        driver = "g++" if program.path.suffix == ".cpp" else "gcc"
        return self._run(driver, seconds, is_limited=is_limited) if program.runs else "compiled"

    def _run(self, driver: str, seconds: int, *, is_limited: bool) -> str:
        linked = self.resident.run(self._linker(driver), _COMPILE)
        if linked.status:
            return f"the linker fails: {linked.output[-2000:]}"
        done: Done = self.resident.run(["./program"], seconds)
        if done.is_too_long and is_limited:
            raise TooLongError
        return f"{done.output}status {done.status}"

    def _linker(self, driver: str) -> list[str]:
        """Give the command that links, without the time that the driver takes to find it."""
        command = self.folder / f"{driver}.txt"
        if not command.exists():
            words = [f"--driver-mode={driver}", *_LINKER, "-###", "program.o", "-o", "program"]
            command.write_text(self.resident.compile(words, _COMPILE).output.splitlines()[-1])
        linker, *words = shlex.split(command.read_text())
        return [linker, "--as-needed", *words, "-lm"]


@dataclass(frozen=True)
class Disagreement:
    """A program that does something else with choices, and the fewest choices with which it does."""

    seed: int
    level: str
    way: Sequence[str]
    choices: Sequence[PassChoice]
    said: str

    def __str__(self) -> str:
        made = "; ".join(f"{each.function or 'all'}: {each.action} {each.name}" for each in self.choices)
        return f"seed {self.seed} -{self.level} {' '.join(self.way)}: {made or 'no choices'}: {self.said}"


@dataclass
class Compared:
    """The result of one seed.

    Attributes:
        counts: of ``programs`` and ``modules`` that were compared, ``compiles`` with choices, ``choices`` in them, and
            ``too long`` ones that were left out.
        disagreements: of its compiles.

    """

    counts: Counter[str] = field(default_factory=Counter)
    disagreements: list[Disagreement] = field(default_factory=list)


def compare(seed: int, compiler: Compiler) -> Compared:
    """Compile the program of a seed at each level with random choices, and compare its output with that of -O0."""
    program = write_program(seed, compiler.folder, compiler.major)
    return compare_program(seed, program, compiler) if program else Compared(Counter({"too long": 1}))


def compare_program(seed: int, program: Program, compiler: Compiler) -> Compared:
    """Compile a program with the choices of a seed, and compare its output with that of -O0."""
    try:
        expected = compiler.print_plain(program)
    except TooLongError:
        return Compared(Counter({"too long": 1}))
    compared = Compared(Counter({"programs" if program.runs else "modules": 1}))
    chance = random.Random(seed)
    for level in LEVELS:
        way, choices = chance.choice(_WAYS), random_choices(chance, program.functions)
        compared.counts += Counter({"compiles": 1, "choices": len(choices)})
        print_with = partial(compiler.print_with, program, level, way)
        try:
            if (said := print_with(choices)) != expected:
                found = Disagreement(seed, level, way, choices, said)
                compared.disagreements.append(_reduced(found, print_with, expected))
        except TooLongError:
            compared.counts += Counter({"compiles": -1, "choices": -len(choices), "too long": 1})
    program.path.unlink()
    return compared


def _reduced(found: Disagreement, print_with: Callable[[Sequence[PassChoice]], str], expected: str) -> Disagreement:
    def fails(tried: Sequence[PassChoice]) -> bool:
        try:
            return print_with(tried) != expected
        except TooLongError:
            return False

    fewest = reduced(found.choices, fails)
    return replace(found, choices=fewest, said=f"{print_with(fewest)!r} is not {expected!r}")


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

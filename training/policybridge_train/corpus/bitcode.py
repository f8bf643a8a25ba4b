"""A source of a recorded command becomes bitcode before optimisation, by a clang that may not be the build's compiler.

The driver is asked for the arguments of ``clang -cc1`` first (``-###``). A flag that only
gcc knows is left out. The same arguments, with ``-emit-llvm-bc -disable-llvm-passes``, then make the module.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from policybridge_core.errors import InvalidError
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.corpus.invocation import Invocation, Source, without_level, without_target
from policybridge_train.processes.process import Ended, compile_by

_REFUSED: Final = (
    re.compile(r"error: unsupported argument '(?P<value>[^']*)' to option '(?P<option>[^']+)'"),
    re.compile(r"error: invalid value '(?P<value>[^']*)' in '(?P<option>[^']+)'"),
    re.compile(r"error: (?:unknown argument:?|unsupported option|optimization flag) '(?P<option>[^']+)'"),
    re.compile(r"error: unknown argument: '(?P<option>[^']+)'"),
)
# clang/lib/Driver/Job.cpp, Command::printArg.
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_CC1: Final = re.compile(r'"-cc1"(?: "(?:[^"\\]|\\.)*")*', re.DOTALL)
_INTERFACE: Final = re.compile(r"-fmodule-output(=.*)?|-fmodules-reduced-bmi")
"""Of a C++ module, what would write its interface: the build's own file of that name stays as it is."""
_LENIENT: Final = ("-Wno-everything", "-Qunused-arguments")
"""What clang refuses by default and older compilers only warn of (implicit declarations, ``register``) is no error."""
_TRIES: Final = 30
_CHARACTERS: Final = 500
_DRIVER: Final = Limits(seconds=60)


@dataclass(frozen=True)
class Unit:
    """One source of one command."""

    invocation: Invocation
    source: Source

    @property
    def path(self) -> Path:
        """The source file, absolute."""
        return self.invocation.command.path(self.source.word)

    @property
    def object(self) -> Path:
        """The object file, absolute."""
        return self.invocation.object_of(self.source)


@dataclass(frozen=True)
class FrontEnd:
    """How modules are made.

    Attributes:
        compiler: the clang.
        level: replaces the build's own level of optimisation, if given: ``Oz``, ``O2``.
        lines: whether bitcode keeps tables of lines.
        limits: of one compilation.
        target: replaces the build's own target, if given: ``aarch64-linux-gnu``. One that begins with ``thumb`` gets
            the flag ``-mthumb``, without which clang's driver compiles for ARM's long instructions.
        profiles: whether the build's own profiles are used (``-fprofile-use``).

    """

    compiler: Compiler
    level: str | None = "Oz"
    lines: bool = False
    limits: Limits = field(default_factory=Limits)
    target: str | None = None
    profiles: bool = False

    def arguments(self, unit: Unit) -> list[str]:
        """Give the arguments of ``clang -cc1`` that compile the unit to an object, with its input and output.

        Raises:
            InvalidError: clang does not accept the flags.

        """
        flags = list(self._flags(unit))
        for _ in range(_TRIES):
            said = self._ask(unit, flags)
            arguments = cc1_arguments(said)
            refused = _refused(said, flags)
            # Without a profile that it cannot read, the driver goes on.
            if arguments and not refused and not (self._is_profiled(unit) and "error: " in said):
                return list(_without_precompiled(_to_object(arguments), unit.invocation.command.folder))
            if not refused:
                raise InvalidError(_first_error(said))
            flags = [flag for index, flag in enumerate(flags) if index not in refused]
        raise InvalidError(f"clang refuses more than {_TRIES} of its flags; the last: {_first_error(said)}")

    def compile(self, arguments: Sequence[str], unit: Unit, output: Path) -> Ended:
        """Compile a unit to bitcode before optimisation.

        Raises:
            OSError: the compiler cannot be started.

        """
        return compile_by(
            [*self.compiler.start, *to_bitcode(arguments, output)],
            self.limits,
            environment=self._environment(unit),
            cwd=str(unit.invocation.command.folder),
        )

    def _flags(self, unit: Unit) -> Iterator[str]:
        flags = unit.invocation.flags
        if self.target is not None:
            flags = (*without_target(flags), f"--target={self.target}")
        if (self.target or "").startswith("thumb"):
            flags = (*flags, "-mthumb")
        yield from flags if self.level is None else (*without_level(flags), f"-{self.level}")
        if self._is_profiled(unit):
            yield from unit.invocation.profiling
        yield "-gline-tables-only" if self.lines else "-g0"

    def _is_profiled(self, unit: Unit) -> bool:
        return self.profiles and unit.invocation.has_clangs_profile

    def _ask(self, unit: Unit, flags: Sequence[str]) -> str:
        mode = "g++" if "++" in unit.invocation.command.name else "gcc"
        command = [
            *(*self.compiler.start, f"--driver-mode={mode}", "-###", *_LENIENT, "-c", *flags),
            *("-o", "module.o", "-x", unit.source.language, "--", unit.source.word),
        ]
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            cwd=unit.invocation.command.folder,
            env=self._environment(unit),
            timeout=_DRIVER.seconds,
        )
        return os.fsdecode(ended.stderr)

    @staticmethod
    def _environment(unit: Unit) -> dict[str, str]:
        return {**os.environ, **unit.invocation.command.variables, "LC_ALL": "C"}


def check_target(compiler: Compiler, target: str) -> None:
    """Check that the clang compiles for a target.

    Raises:
        InvalidError: it does not.

    """
    command = [*compiler.start, f"--target={target}", "-S", "-o", "-", "-x", "c", os.devnull]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_DRIVER.seconds)
    if ended.returncode:
        said = _first_error(os.fsdecode(ended.stderr))
        raise InvalidError(
            f"{compiler.name} does not compile for {target!r}, only for triples as aarch64-linux-gnu: {said}"
        )


def to_bitcode(arguments: Sequence[str], output: Path) -> list[str]:
    """Change arguments that compile to an object into those that write bitcode before optimisation."""
    changed = ["-emit-llvm-bc" if word == "-emit-obj" else word for word in arguments]
    index = changed.index("-o")
    changed[index + 1] = str(output)
    # The output is temporary itself, and a compiler that is ended leaves another temporary file beside it.
    return [*changed[:1], "-disable-llvm-passes", "-fno-temp-file", *changed[1:]]


def kept_arguments(arguments: Sequence[str], root: Path) -> tuple[str, ...]:
    """Leave out input and output, as clang does in the section ``.llvmcmd`` (CompilerInvocation.cpp, CmdArgs).

    The project's folder becomes ``.``, so that a module's digest does not depend on where the project was built.
    """
    words = iter(arguments)
    kept: list[str] = []
    for word in words:
        if word in ("-o", "-x"):
            next(words, None)
        else:
            kept.append(word.replace(str(root), "."))
    return tuple(kept[:-1])


def cc1_arguments(said: str) -> list[str] | None:
    """Find the arguments of the one ``clang -cc1`` in the output of ``-###``; ``None`` if it has none or several."""
    commands = _CC1.findall(said)
    if len(commands) != 1:
        return None
    return [re.sub(r"(?s)\\(.)", r"\1", word) for word in _QUOTED.findall(commands[0])]


def _to_object(arguments: Sequence[str]) -> list[str]:
    """Write an object alone: no interface of a C++ module, and no text for another assembler (-fno-integrated-as)."""
    return ["-emit-obj" if word == "-S" else word for word in arguments if not _INTERFACE.fullmatch(word)]


def _without_precompiled(arguments: Sequence[str], folder: Path) -> Iterator[str]:
    """Include the text of a precompiled header: one of another clang, or of another level, is refused by this one."""
    words = iter(arguments)
    included = {after for word, after in pairwise(arguments) if word == "-include"}
    for word in words:
        file = next(words, "") if word == "-include-pch" else ""
        header = str(Path(file).with_suffix("")) if file else ""
        if not file:
            yield word
        elif not (folder / header).is_file():
            # The header's text is not there.
            yield from (word, file)
        elif header not in included:
            yield from ("-include", header)


def _refused(said: str, flags: Sequence[str]) -> set[int]:
    """Give the indices of the flags that the driver refuses."""
    indices: set[int] = set()
    for line in said.splitlines():
        found = next((match for pattern in _REFUSED if (match := pattern.search(line))), None)
        if found is not None:
            option, value = found["option"], found.groupdict().get("value", "")
            indices.update(
                index
                for index, flag in enumerate(flags)
                if flag == option or (flag.startswith(option) and value is not None and value in flag)
            )
    return indices


def _first_error(said: str) -> str:
    errors = [line for line in said.splitlines() if "error:" in line]
    return (errors or [said.strip() or "clang says nothing"])[0][:_CHARACTERS]

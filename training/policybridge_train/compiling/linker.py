"""What programs have of a compiler's objects once they are linked: COMDATs merged, unused sections dropped.

The linker is a real one. Symbols of libraries and assembler stay unresolved, so the figures count the corpus' own code
in the program. They are for comparisons: the programs cannot run.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Program
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.process import Running, compile_by

_OPTIONS: Final = (
    "-static",
    "--gc-sections",
    "--unresolved-symbols=ignore-all",
    "--noinhibit-exec",
    "-zmuldefs",
    "--eh-frame-hdr",
    "--build-id=none",
    "--strip-all",
    "--no-warnings",
)
_ENTRIES: Final = ("main", "_start")


@dataclass(frozen=True)
class Linked:
    """A program's size.

    Attributes:
        text: bytes that are loaded and not written, as llvm-size counts them.
        exec: bytes of code.
        sections: bytes of each loaded section, by its name.
        missing: the program's modules for which there is no object.
        note: the linker's complaints, or a deviation from how other programs are linked; mostly empty.

    """

    program: Program
    text: int
    exec: int
    sections: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Unlinked:
    """A program that could not be linked, and why."""

    program: Program
    reason: str


@dataclass(frozen=True)
class Linker:
    """A linker that takes the options of GNU ld: its own, or LLVM's."""

    start: tuple[str, ...]

    @classmethod
    def find(cls) -> "Linker":
        """Find GNU ld, else ld.lld, else the ld.lld in the wheel ``ziglang``.

        Raises:
            NotFoundError: there is none.

        """
        path = shutil.which("ld.bfd")
        return cls((path,)) if path else cls.lld()

    @classmethod
    def lld(cls) -> "Linker":
        """Find ld.lld, which links for every machine, else the one in the wheel ``ziglang``.

        Raises:
            NotFoundError: there is none.

        """
        path = shutil.which("ld.lld")
        if path:
            return cls((path,))
        if find_spec("ziglang"):
            return cls((sys.executable, "-m", "ziglang", "ld.lld"))
        raise NotFoundError("there is no linker: install GNU binutils, ld.lld, or ziglang from PyPI")

    @cached_property
    def version(self) -> str:
        """The first line that the linker says of itself."""
        said = subprocess.run([*self.start, "--version"], capture_output=True, text=True, check=False).stdout
        return said.partition("\n")[0]

    def link(
        self,
        program: Program,
        objects: Mapping[str, Path],
        limits: Limits = Limits(),  # noqa: B008 - it cannot be changed
        running: Running | None = None,
    ) -> Linked | Unlinked:
        """Link a program from those of its modules that have an object, and give its size.

        An executable is linked from its ``main`` (else ``_start``). All that a shared library exports, and all global
        symbols of an archive, are kept with what they need; so is an executable's code where it has no ``main``.
        Objects of another machine than this one are linked by ld.lld: GNU ld knows the machines that it was built for.

        Args:
            program: the program.
            objects: the file of each module's object, by the module's name.
            limits: of the linker.
            running: where the linker is counted while it runs.

        """
        names = dict.fromkeys(program.modules)
        files = [objects[name] for name in names if name in objects]
        if not files:
            return Unlinked(program, "none of its modules has an object")
        try:
            read = [ObjectFile.read(file) for file in files]
            roots, note = _roots(program, read)
            linker = self if read[0].machine == _here() else Linker.lld()
            made, said = linker._made([*roots, *map(str, files)], limits, running)
        except (InvalidError, NotFoundError, OSError) as error:
            return Unlinked(program, str(error))
        missing = tuple(name for name in names if name not in objects)
        notes = "; ".join(filter(None, [note, said]))
        return Linked(program, made.text, made.exec, made.loaded, missing, notes)

    def _made(self, words: Sequence[str], limits: Limits, running: Running | None) -> tuple[ObjectFile, str]:
        """Link; give the program and the linker's output."""
        with TemporaryDirectory(prefix="policybridge-link-") as folder:
            output, response = Path(folder) / "program", Path(folder) / "words"
            # A response file, because a library has more names than a command line takes.
            text = "\n".join(map(_quoted, [*words, "-o", str(output)]))
            response.write_bytes(text.encode(errors="surrogateescape"))
            done = compile_by([*self.start, *_OPTIONS, f"@{response}"], limits, running=running)
            if not output.exists() or not output.stat().st_size:
                raise InvalidError(f"{self.version}: {done.message or 'it wrote no program'}")
            return ObjectFile.read(output), done.message.replace(f"{folder}/", "")


def _here() -> int:
    """Give the number of this machine, from the header of the program that runs."""
    with Path(sys.executable).open("rb") as file:
        return int.from_bytes(file.read(20)[18:], "little")


def _roots(program: Program, objects: Sequence[ObjectFile]) -> tuple[list[str], str]:
    """Give the linker's words that say what must be kept, and a note."""
    if program.kind == "executable":
        names = {name for each in objects for name in each.globals()}
        entry = next((name for name in _ENTRIES if name in names), None)
        if entry is not None:
            return [f"--entry={entry}", f"--undefined={entry}"], ""
    shared = program.kind == "shared"
    kept = dict.fromkeys(name for each in objects for name in each.globals(exported=shared))
    note = "it has no main, so all its global symbols are kept" if program.kind == "executable" else ""
    return ["--entry=0", *(f"--undefined={name}" for name in kept)], note


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

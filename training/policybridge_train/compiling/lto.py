"""Programs, and their modules by ThinLTO, as modules that LLD compiles at link time.

Full LTO merges all modules of a program and optimises the result: one link is one compile. ThinLTO optimises each
module by itself, with functions of others; LLD can be told to do one of them alone.

Inputs are the program's modules after the compiler's own part of LTO, in which LLVM decides. Symbols of libraries and
assembler stay unresolved, as in `policybridge_train.compiling.linker`. Every link drops unused sections and folds
identical functions: these are flags, and no merit of a policy.
"""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import ClassVar, Final, Literal, TypeVar

from policybridge_client.decisions.text import Phase
from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.module import Module
from policybridge_train.objects.elf import ObjectFile

T = TypeVar("T")

Mode = Literal["full", "thin"]
MODES: Final[tuple[Mode, ...]] = ("full", "thin")

_OPTIONS: Final = (
    "--gc-sections",
    "--icf=all",
    "--strip-all",
    "--eh-frame-hdr",
    "--hash-style=gnu",
    "--build-id=none",
    "--unresolved-symbols=ignore-all",
    # A list of shown names has those of versions and of assembler, too, which no module defines.
    "--undefined-version",
    "-zmuldefs",
    "--no-warnings",
    "--thinlto-jobs=1",
)
_VERSION: Final = re.compile(r"\bLLD (\d+)\.")
_EXPORTED: Final = re.compile(r"\.llvm\.\d+$")


@dataclass(frozen=True)
class LinkedModule(Module):
    """The unit that a link optimises: a whole program, or one of its modules by ThinLTO.

    Attributes:
        inputs: the files of the program's modules, in the order of its link.
        mode: the kind of LTO.
        words: further options of LLD.
        only: of the inputs, the one module that is compiled; ``None``: the program is linked.

    """

    inputs: tuple[Path, ...] = ()
    mode: Mode = "full"
    words: tuple[str, ...] = ()
    only: Path | None = None
    phase: ClassVar[Phase] = "link"

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of all that makes the object: inputs are named by their digests."""
        names = (path.name for path in (*self.inputs, *filter(None, [self.only])))
        return hashlib.sha256("\0".join((self.mode, *self.words, *names)).encode(errors="surrogateescape")).hexdigest()

    @property
    def is_whole(self) -> bool:
        """Whether one module of LLVM is the whole program."""
        return self.mode == "full"

    def link(self, output: Path, extra: Sequence[str] = ()) -> list[str]:
        """Give the arguments of LLD; see `outputs` for what it writes.

        Args:
            output: of the module's object.
            extra: arguments of cc1.

        Raises:
            InvalidError: LLD has no such argument.

        """
        whole = self.outputs(output)[0]
        words = [*_OPTIONS, *self.words, *_at_link(extra), *map(str, dict.fromkeys(self.inputs))]
        if self.is_whole or self.only is not None:
            words.append(f"--lto-obj-path={output}")
        if self.only is not None:
            words.append(f"--thinlto-single-module={self.only}")
        return [*words, "-o", str(whole if self.only is None else output.with_name("none"))]

    def outputs(self, output: Path) -> tuple[Path, Path]:
        """Give the file whose bytes count, and the one that has functions apart.

        A program that is merged has both. ThinLTO writes the object of one module behind an empty one.
        """
        if self.only is not None:
            made = output.with_name(f"{output.name}1")
            return made, made
        program = output.with_name(f"{output.name}.program")
        return program, output if self.is_whole else program

    def read(self, output: Path) -> tuple[ObjectFile, ObjectFile]:
        """Read the `outputs`.

        Raises:
            InvalidError: one is malformed, or the program has no code.

        """
        made, apart = map(ObjectFile.read, self.outputs(output))
        if self.only is None and not made.exec:
            raise InvalidError(
                "nothing of it is left once unused functions are dropped: its modules have no main, and show no names"
            )
        return made, apart

    def lasting(self, values: Mapping[str, T]) -> Mapping[str, T]:
        """Give values by function under the names of the sites: local functions as they were before ThinLTO."""
        return {_EXPORTED.sub("", name): value for name, value in values.items()}


def _at_link(extra: Sequence[str]) -> list[str]:
    """Give arguments of cc1 as LLD has them."""
    words = iter(extra)
    found: list[str] = []
    for word in words:
        option = next(words, None) if word == "-mllvm" else None
        if option is None:
            raise InvalidError(f"{word} is an argument of clang; at link time give options of LLVM: -mllvm,OPTION")
        found += [word, option]
    return found


def find_lld(compiler: Compiler) -> Path:
    """Find the LLD of a compiler's LLVM: beside it, or on PATH.

    Raises:
        NotFoundError: there is none.

    """
    major = compiler.major
    beside = Path(compiler.start[-1]).resolve().with_name("ld.lld")
    named = (shutil.which(name) for name in (f"ld.lld-{major}", "ld.lld"))
    for path in (beside, *map(Path, filter(None, named))):
        if path.exists() and _major_of(path) == major:
            return path
    raise NotFoundError(
        f"LTO with {compiler.name} needs LLD {major}: install it (Debian: apt install lld-{major}), or choose another "
        "--compiler"
    )


def find_tool(compiler: Compiler, tool: str) -> str | None:
    """Name a tool (``ar``, ``nm``) of a compiler's LLVM: on PATH, or beside the compiler; ``None`` if there is none."""
    name = f"llvm-{tool}-{compiler.major}"
    beside = Path(shutil.which(compiler.start[-1]) or compiler.start[-1]).resolve().with_name(f"llvm-{tool}")
    return name if shutil.which(name) else str(beside) if beside.exists() else None


@cache
def _major_of(lld: Path) -> int:
    said = subprocess.run([lld, "--version"], capture_output=True, text=True, check=False).stdout
    found = _VERSION.search(said)
    return int(found[1]) if found else 0


def plugin_variables(options: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Give options of the plugin, by their names, as the variables that its settings in LLD are."""
    found = {"POLICYBRIDGE_PHASES": "link"}
    for name, value in options:
        # The one option that is repeated is a list in its variable.
        key = "POLICYBRIDGE_LABELS" if name == "label" else f"POLICYBRIDGE_{name.upper().replace('-', '_')}"
        found[key] = f"{found[key]},{value}" if key in found else value
    return found

"""A module before optimisation, as a corpus and a job have it, and a program that is linked of modules."""

import hashlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final, Literal

from policybridge_client.decisions.text import Phase

Kind = Literal["executable", "shared", "archive"]

# Arguments of `clang -cc1` (clang/include/clang/Driver/Options.td, CC1Option) that still matter for bitcode: they steer
# LLVM's pipeline and its code generator. Those of the preprocessor and of the front end have done their work.
_WITH_VALUE: Final = frozenset(
    shlex.split("""
        -triple -mrelocation-model -pic-level -target-cpu -target-feature -tune-cpu -target-abi -stack-protector
        -stack-protector-buffer-size -mllvm -mcode-model -mfloat-abi -mthread-model -split-stacks
    """)
)
_ALONE: Final = re.compile(
    r"-O[0-3sz]?|-pic-is-pie|-ffunction-sections|-fdata-sections|-fno-builtin.*|-ffreestanding|-vectorize-(loops|slp)"
    r"|-f(no-)?unroll-loops|-funwind-tables=\d|-mframe-pointer=[\w-]+|-exception-model=\w+|-faddrsig|-fno-plt"
    r"|-mconstructor-aliases|-fno-jump-tables|-munwind-tables|-fuse-init-array|-fno-use-init-array|-mnoexecstack"
    r"|-femulated-tls|-f(no-)?unique-section-names|-mcode-model=\w+|-mcmodel=\w+|-ffp-contract=\w+|-fmath-errno"
    r"|-fwrapv|-fdwarf2-cfi-asm|-flto|-disable-free|-fsanitize=.*|-fxray.*"
)


PROFILES: Final = ("-fprofile-instrument-use-path", "-fprofile-sample-use")
"""Options of ``clang -cc1`` that name a profile; of a module's arguments those with a copy in the corpus are used."""

_PROFILE: Final = re.compile(rf"({'|'.join(PROFILES)})=(?P<file>profiles/[0-9a-f]{{64}})")
_KIND_OF_PROFILE: Final = "-fprofile-instrument-use="
"""LLVM 22's driver reads the profile's kind, whether the front end or LLVM applies it; those before leave it to cc1."""


def profile_name(digest: str) -> str:
    """Give the path below its folder at which a corpus keeps a profile of this SHA-256, in hex."""
    return f"profiles/{digest}"


@dataclass(frozen=True)
class Program:
    """A program, library or archive linked from modules.

    Attributes:
        name: of the file, relative to the project's build folder.
        project: the project's name.
        kind: an executable, a shared library, or a static archive.
        modules: the names of its modules, in the order of the command. Objects that are no module of the corpus (of
            assembler, of another compiler) are left out.
        exports: the names that it shows to others, if a list limits them or it is an executable; ``None``: all that can
            be shown, or they are not known.

    """

    name: str
    project: str
    kind: Kind
    modules: tuple[str, ...]
    exports: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Module:
    """One translation unit before optimisation.

    Attributes:
        name: the path of its files below the corpus' folder, without their endings.
        folder: the corpus' folder.
        arguments: of ``clang -cc1``, as recorded; input and output among them are not used.
        project: the project's name; the first folder of ``name`` where nothing else is known.
        source: the path of the source file, relative to the folder in which the project was built or checked out;
            ``name`` where it is not known.
        language: ``c``, ``c++``, ….
        file: of the bitcode, if it is not in the corpus' folder.
        profile_file: of the profile, likewise.
        phase: whether a compiler optimises it, or a linker (`policybridge_train.compiling.lto`).

    """

    name: str
    folder: Path
    arguments: tuple[str, ...] = ()
    project: str = ""
    source: str = ""
    language: str = ""
    file: Path | None = None
    profile_file: Path | None = None
    phase: ClassVar[Phase] = "compile"

    @cached_property
    def bitcode(self) -> Path:
        """The file of the bitcode."""
        return self.file or self.folder / f"{self.name}.bc"

    @cached_property
    def profile(self) -> Path | None:
        """The file of the profile that it is optimised with; ``None``: there is none."""
        names = (found["file"] for word in self.arguments if (found := _PROFILE.fullmatch(word)))
        name = next(names, None)
        return None if name is None else self.profile_file or self.folder / name

    @property
    def index(self) -> Path:
        """The file of ThinLTO's index, in a corpus of ThinLTO."""
        return self.folder / f"{self.name}.thinlto.bc"

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the bitcode and the arguments."""
        digest = hashlib.sha256(self.bitcode.read_bytes())
        digest.update("\0".join(self.arguments).encode(errors="surrogateescape"))
        return digest.hexdigest()

    @cached_property
    def backend_arguments(self) -> Sequence[str]:
        """The arguments that still matter for bitcode, in their order."""
        return list(_of_backend(self.arguments, self.profile))


def _of_backend(arguments: Sequence[str], profile: Path | None) -> Iterator[str]:
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            value = next(words, None)
            if value is not None:
                yield from (word, value)
        elif _ALONE.fullmatch(word) or (profile and word.startswith(_KIND_OF_PROFILE)):
            yield word
        elif profile and (named := _PROFILE.fullmatch(word)):
            yield f"{named[1]}={profile}"

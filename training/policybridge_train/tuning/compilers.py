"""The compiler of a recorded build: decisions apply to the compiler for which they were found."""

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.corpus.conversion import own_sources
from policybridge_train.corpus.invocation import parse_compiler
from policybridge_train.corpus.notes import BuildCommand
from policybridge_train.tuning.build_folder import configured_folder

_UNOPTIMISED = frozenset(("", "-O0"))
_FLAGS: Final = {"full": "-flto", "thin": "-flto=thin"}
_LTO: Final = re.compile(r"-f(?P<no>no-)?lto(=(?P<thin>thin)?.*)?")


@dataclass(frozen=True)
class BuildCompilers:
    """The compilers that a build used, but for trials of the build system's.

    Attributes:
        sources: how many sources each compiled, by its path.
        levels: how many were compiled at each level (``-Oz``; empty if a command has none).
        languages: of the sources, as for ``-x``.
        links: how many sources were compiled for each kind of LTO (``full``, ``thin``; empty for none).
        profiled: how many sources were compiled with a profile that no clang reads, and how many others.
        folders: of the sources; those that the build removed are left out.
        configured: by CMake or Meson: the folders in which sources were compiled, in the order of the first ones.

    """

    sources: Counter[str]
    levels: Counter[str]
    languages: Counter[str]
    links: Counter[str] = field(default_factory=Counter)
    profiled: Counter[bool] = field(default_factory=Counter)
    folders: set[Path] = field(default_factory=set)
    configured: list[Path] = field(default_factory=list)

    @classmethod
    def of(cls, commands: Sequence[BuildCommand]) -> "BuildCompilers":
        """Read the commands of a build."""
        found = cls(Counter(), Counter(), Counter())
        for command in commands:
            invocation = parse_compiler(command)
            if invocation is None or invocation.stage == "other":
                continue
            sources = own_sources(invocation)
            count = len(sources)
            levels = [flag for flag in invocation.flags if flag.startswith("-O")]
            found.sources[_path(command)] += count
            found.levels[levels[-1] if levels else ""] += count
            found.languages.update(source.text for source in sources)
            found.links[_lto(command.arguments)] += count
            found.profiled[invocation.is_profiled and not invocation.has_clangs_profile] += count
            found.folders.update(command.path(source.word).parent for source in sources)
            if count and (configured := configured_folder(command.folder)) and configured not in found.configured:
                found.configured.append(configured)
        found.folders.intersection_update([folder for folder in found.folders if folder.is_dir()])
        return found

    @property
    def is_optimised(self) -> bool:
        """Whether any source was compiled with optimisation, or there are none."""
        return not +self.levels or any(level not in _UNOPTIMISED for level in +self.levels)

    @property
    def left_to_link(self) -> str:
        """Why decisions about objects have no effect, for people; empty where they have one."""
        count = self.links.total() - self.links[""]
        if not count or "pre-link" in os.environ.get("POLICYBRIDGE_PHASES", ""):
            return ""
        return f"{count:,} of {self.links.total():,} sources have -flto, which leaves decisions to link time"

    def notes(self, *, lto: str | None, speed: bool = False) -> Iterator[str]:
        """Say, for people, why less may be won than is told.

        Args:
            lto: the kind of LTO for a search at link time.
            speed: whether it is one for speed, which is never at link time.

        """
        if self.left_to_link and not lto:
            mode = max(("full", "thin"), key=self.links.__getitem__)
            cure = "a store does not change these: build without it" if speed else f"--lto {mode} searches for them"
            yield f"{self.left_to_link}: {cure}"
        other = "thin" if lto == "full" else "full"
        if lto and (count := self.links[other]):
            yield (
                f"{count:,} of {self.links.total():,} sources have {_FLAGS[other]} of their own, behind that of the "
                f"lines, where a store of --lto {lto} changes nothing: give --lto {other}, or build without it"
            )
        if count := self.profiled[True]:
            yield (
                f"{count:,} of {self.profiled.total():,} sources are compiled with a profile of GCC's, and searched "
                "without it"
            )

    @cached_property
    def clangs(self) -> Sequence[Compiler]:
        """The clangs among them, one of each version, the one that compiled most first."""
        counts: Counter[str] = Counter()
        by_version: dict[str, Compiler] = {}
        for path, count in self.sources.most_common():
            clang = _clang(path) if count else None
            if clang is not None:
                counts[clang.version] += count
                by_version.setdefault(clang.version, clang)
        return [by_version[version] for version, _ in counts.most_common()]

    def has(self, compiler: Compiler) -> bool:
        """Tell whether a clang of this version is among them."""
        return compiler.version in [each.version for each in self.clangs]

    @property
    def named(self) -> str:
        """All of them, for people."""
        return " and ".join(sorted(+self.sources))

    @property
    def has_cxx(self) -> bool:
        """Whether there are sources of C++."""
        return any("++" in language for language in +self.languages)

    @property
    def has_c(self) -> bool:
        """Whether there are sources of C."""
        return any("++" not in language for language in +self.languages)

    def chosen(self) -> Compiler:
        """Give the clang that compiled most.

        Raises:
            PreconditionError: none did; the message names the compilers that did.

        """
        if self.clangs:
            return self.clangs[0]
        raise PreconditionError(
            f"the build compiles with {self.named}, and decisions apply to clang alone: build with clang "
            "(make CC=clang-22 CXX=clang++-22), or name the clang that will build with the store (--compiler clang-22)"
        )


def _lto(arguments: Sequence[str]) -> str:
    last = next((found for word in reversed(arguments) if (found := _LTO.fullmatch(word))), None)
    return "" if last is None or last["no"] else last["thin"] or "full"


def _path(command: BuildCommand) -> str:
    """Give the path of a command's program; behind a launcher (``ccache clang``) it may be a name on PATH."""
    on_path = None if "/" in command.tool else shutil.which(command.tool)
    return on_path or str(command.folder / command.tool)


def _clang(path: str) -> Compiler | None:
    """Give the C driver of a clang, which compiles C++ too; ``None`` if the program is no clang."""
    file = Path(path)
    for each in (file.with_name(file.name.replace("clang++", "clang")), file):
        try:
            compiler = Compiler.find(str(each))
            _ = compiler.version
        except NotFoundError:
            continue
        # The name is enough, where it starts the same program.
        on_path = shutil.which(each.name)
        is_same = on_path is not None and Path(on_path).resolve() == each.resolve()
        return Compiler.find(each.name) if is_same else compiler
    return None

"""Linking a program of a recorded build again, by the build's own command, with some of its objects changed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_train.compiling.limits import Limits
from policybridge_train.corpus.invocation import Invocation, parse_compiler
from policybridge_train.corpus.linking import Linked, read_links
from policybridge_train.corpus.notes import BuildCommand
from policybridge_train.corpus.programs import Programs
from policybridge_train.processes.process import Running, compile_by
from policybridge_train.speed.archives import changed_archive
from policybridge_train.speed.link_words import relinked

_SPACE: Final = """\
.section .text.unlikely.policybridge,"ax",%progbits
.globl policybridge_space
policybridge_space:
.space {}
.section .note.GNU-stack,"",%progbits
"""
"""A section that linkers place before all others of code."""


@dataclass(frozen=True)
class Relinking:
    """One program's last link.

    Attributes:
        command: the compiler's that linked it.
        objects: by the paths of the program's objects that can be replaced, the names of their modules.
        archives: by the paths of the build's archives among the link's inputs, the objects in them that are modules'.

    """

    command: Invocation
    objects: Mapping[Path, str]
    archives: Mapping[Path, Sequence[Path]]

    @classmethod
    def of(cls, program: Path, commands: Sequence[BuildCommand], names: Mapping[Path, str]) -> "Relinking":
        """Find how a program was linked.

        Args:
            program: its file.
            commands: of the build, in their order.
            names: by object: the name of its module.

        Raises:
            NotFoundError: the build did not link it by a compiler.
            PreconditionError: nothing of it was compiled by the build.

        """
        links = list(_links(commands))
        found = next((each for each in reversed(links) if each[1].path == program), None)
        if found is None:
            raise NotFoundError(_unlinked(program, commands, [each for _, each in links]))
        programs = Programs(names)
        programs.follow(read_links(commands))
        objects = next((objects for path, _, objects in programs if path == program), [])
        if not objects:
            raise PreconditionError(f"--run starts {program}, of which the build compiled no source to be tuned")
        archives = {path: its for path, made, its in programs if made == "archive" and path in found[1].inputs}
        reached = {*found[1].inputs, *(path for each, its in archives.items() for path in _named(each, its, commands))}
        replaced = {path: names[path] for path in objects if path in reached}
        if not replaced:
            raise PreconditionError(
                f"--run starts {program}, which is linked of copies of its objects or archives, or of an object "
                "of ld -r: link those that the compiler and the archiver write"
            )
        return cls(found[0], replaced, archives)

    @property
    def modules(self) -> Sequence[str]:
        """The names of the program's modules, in the order of the link, that can be changed."""
        twice = {path for members in self.archives.values() for path in _of_one_name(members)}
        return list(dict.fromkeys(name for path, name in self.objects.items() if path not in twice))

    def link(  # noqa: PLR0913 - each is of the link
        self,
        changed: Mapping[str, Path],
        output: Path,
        folder: Path,
        limits: Limits,
        running: Running,
        *,
        space: int = 0,
    ) -> None:
        """Link the program with objects in place of its own.

        Args:
            changed: by module.
            output: the program.
            folder: for files of the link.
            limits: of the linker.
            running: where it is counted.
            space: bytes to leave before its code.

        Raises:
            PreconditionError: it cannot be linked.

        """
        words = [self.command.command.tool, *_before_code(space, folder)]
        words += self._words(changed, output, folder, limits)
        done = compile_by(words, limits, cwd=self.command.command.folder, running=running)
        if not done.ok:
            raise PreconditionError(f"{output.name} cannot be linked again by the build's command: {done.failure}")

    def _words(self, changed: Mapping[str, Path], output: Path, folder: Path, limits: Limits) -> Iterator[str]:
        own = {path: changed[name] for path, name in self.objects.items() if name in changed}
        swapped = {path: str(made) for path, made in own.items()}
        for number, archive in enumerate(self.archives):
            # Archives of several folders may have one name.
            swapped[archive] = self._archive(archive, own, folder / f"archive-{number}", limits)
        sources = {source.word: self.command.object_of(source) for source in self.command.sources}
        libraries = {name: path for path in self.archives for name in _library_words(path)}

        def swap(word: str) -> str:
            path = sources.get(word) or libraries.get(word) or self.command.command.path(word)
            return swapped.get(path, word)

        yield from relinked(self.command.command.arguments, swap)
        yield from ("-o", str(output))

    def _archive(self, archive: Path, own: Mapping[Path, Path], place: Path, limits: Limits) -> str:
        """Give an archive with the changed objects in it, made in a folder; the archive itself if none is."""
        members = [path for path in self.archives[archive] if path in own and path not in self._twice(archive)]
        if not members:
            return str(archive)
        return changed_archive(archive, own, members, place, limits)

    def _twice(self, archive: Path) -> set[Path]:
        return set(_of_one_name(self.archives[archive]))


def _unlinked(program: Path, commands: Iterable[BuildCommand], links: Iterable[Linked]) -> str:
    by = next((each.name for each in commands if any(made.path == program for made in _made(each))), None)
    if by is not None:
        return f"--run starts {program}, which the build links by {by} itself: link it by the compiler, such as clang"
    # A copy has the name of its program, but another folder.
    known = ", ".join(sorted({_seen(each.path) for each in links if each.kind == "executable"})) or "none"
    return (
        f"--run starts {program}, which the build did not link: run a program that it links ({known}), not a "
        "script or a copy of one"
    )


def _made(command: BuildCommand) -> Iterator[Linked]:
    yield from (each for each in read_links([command]) if isinstance(each, Linked))


def _seen(path: Path) -> str:
    return str(path.relative_to(here)) if path.is_relative_to(here := Path.cwd()) else str(path)


def _named(archive: Path, members: Iterable[Path], commands: Iterable[BuildCommand]) -> Iterator[Path]:
    """Give the members that an archiver replaces by the name of their object; a copy's member has the copy's name."""
    inputs = (path for each in commands for made in _made(each) if made.path == archive for path in made.inputs)
    known = {path.name for path in inputs}
    yield from (path for path in members if path.name in known)


def _library_words(archive: Path) -> Iterator[str]:
    yield from (f"-l{archive.stem.removeprefix('lib')}", f"-l:{archive.name}")


def _before_code(space: int, folder: Path) -> Iterator[str]:
    if space:
        source = folder / f"space-{space}.s"
        source.write_text(_SPACE.format(space), encoding="ascii")
        # Else --gc-sections drops it. Assemblers before binutils 2.36 know no flag of the section that retains it.
        yield from (str(source), "-Wl,-u,policybridge_space")


def _of_one_name(members: Iterable[Path]) -> Iterator[Path]:
    """Give the members whose name another one has, too: an archiver would replace the first of them alone."""
    members = list(members)
    often = Counter(path.name for path in members)
    yield from (path for path in members if often[path.name] > 1)


def _links(commands: Iterable[BuildCommand]) -> Iterator[tuple[Invocation, Linked]]:
    for command in commands:
        invocation = parse_compiler(command)
        if invocation is not None and invocation.stage == "link":
            yield from ((invocation, linked) for linked in _made(command))

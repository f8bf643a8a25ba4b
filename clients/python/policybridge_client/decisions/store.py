"""The store: decisions of tuned modules, which a compiler applies without a server.

It has only decisions that differ from LLVM's own. So a compilation with the store reaches the same calls in the same
order as the compilation that the store was made from.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from policybridge_client.decisions.passes import PassChoice
from policybridge_client.decisions.text import By, Level, Phase


@dataclass(frozen=True)
class Decision:
    """A decision that differs from LLVM's own.

    Attributes:
        key: 16 hexadecimal digits; with ``.N`` behind them if the section is by sequence.
        inline: whether the call is inlined.
        caller: the function that holds the call, for people.
        callee: the called function, for people.

    """

    key: str
    inline: bool
    caller: str = ""
    callee: str = ""


@dataclass(frozen=True)
class Heading:
    """Identifies the module of a section; a compilation finds its section by it.

    Attributes:
        llvm: LLVM's major version.
        level: see `Level`.
        by: see `By`.
        digest: 16 hexadecimal digits over the module at the start of the pipeline; ``None`` if unknown.
        path: the source: relative to the store's folder if it lies below, else absolute, else a module's name. For full
            LTO, the linker's output.
        phase: see `Phase`.

    """

    llvm: int
    level: Level
    by: By
    digest: str | None
    path: str
    phase: Phase = "compile"

    def names(self, path: str) -> bool:
        """Tell whether this is a source's path, as far as it goes, and not the last component alone."""
        return f"/{path}".endswith(f"/{self.path.lstrip('/')}")


@dataclass(frozen=True)
class Section:
    """The decisions of one module.

    Attributes:
        heading: the module, and how it was compiled.
        decisions: about inlining, in their order.
        passes: the choices about the passes of functions, in their order; none if the section is by sequence.

    """

    heading: Heading
    decisions: Sequence[Decision] = ()
    passes: Sequence[PassChoice] = ()

    @cached_property
    def answers(self) -> Mapping[str, bool]:
        """Whether to inline, by the decision's key."""
        return {decision.key: decision.inline for decision in self.decisions}

    @property
    def is_empty(self) -> bool:
        """Whether LLVM alone decides about the module."""
        return not self.decisions and not self.passes


@dataclass(frozen=True)
class Store:
    """All sections of a store.

    Attributes:
        sections: one for each module that has decisions, or of whose source another module has some.

    """

    sections: Sequence[Section] = field(default=())

    def with_section(self, section: Section, *, beside: Collection[str] = ()) -> "Store":
        """Return a store in which this section replaces all with its path, LLVM version, level, kind of keys and phase.

        A source that a build compiles with several sets of options, or links into several programs, is several
        modules: ``beside`` holds the digests of the others, whose sections stay. A section without decisions only
        removes, unless one with decisions stays: there it keeps these from its own module.
        """
        heading = section.heading
        others = set(beside) - {heading.digest}
        kept = [
            each for each in self.sections if _module(each.heading) != _module(heading) or each.heading.digest in others
        ]
        of_source = [section, *(each for each in kept if _module(each.heading) == _module(heading))]
        if all(each.is_empty for each in of_source):
            return Store([each for each in kept if each not in of_source])
        return Store([*kept, section] if heading.digest or not section.is_empty else kept)

    def section_for(self, heading: Heading) -> Section | None:
        """Choose the section for a compilation; ``None`` if no section fits.

        A section fits if level, kind of keys and phase are equal, and the digest or the last component of the path; one
        without decisions by its digest alone, if it has one. The best has, in this order: the same LLVM version, the
        same digest, the most equal components at the path's end. Of equally good sections the first counts.
        """
        fitting = [section for section in self.sections if _fits(section, heading)]
        return max(fitting, key=lambda section: _quality(section.heading, heading), default=None)

    def mismatch(self, heading: Heading) -> str:
        """Tell people why the decisions about a module do not apply to it; empty if its path has none."""
        full = [each.heading for each in self.sections if not each.is_empty]
        own = next((each for each in full if each.names(heading.path)), None)
        if own is None:
            return ""
        if own.phase != heading.phase:
            had, wanted = f"at {own.phase} time", f"at {heading.phase} time"
        elif own.level != heading.level:
            had, wanted = f"at -{own.level}", f"at -{heading.level}"
        else:
            had, wanted = f"by {own.by}", f"by {heading.by}"
        return f"has decisions about {heading.path} {had}, and none {wanted}"


def _module(heading: Heading) -> tuple[object, ...]:
    return heading.path, heading.llvm, heading.level, heading.by, heading.phase


def _fits(section: Section, wanted: Heading) -> bool:
    heading = section.heading
    if (heading.level, heading.by, heading.phase) != (wanted.level, wanted.by, wanted.phase):
        return False
    is_for_digest = section.is_empty and heading.digest is not None
    is_near = not is_for_digest and _equal_components(heading.path, wanted.path) > 0
    return is_near or _same_digest(heading, wanted)


def _quality(section: Heading, wanted: Heading) -> tuple[int, ...]:
    return (
        section.llvm == wanted.llvm,
        _same_digest(section, wanted),
        _equal_components(section.path, wanted.path),
    )


def _same_digest(section: Heading, wanted: Heading) -> bool:
    return section.digest is not None and section.digest == wanted.digest


def _equal_components(first: str, second: str) -> int:
    """Count the path components that are equal, from the last one on."""
    count = 0
    for one, other in zip(reversed(_components(first)), reversed(_components(second)), strict=False):
        if one != other:
            break
        count += 1
    return count


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]

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


@dataclass(frozen=True)
class Store:
    """All sections of a store.

    Attributes:
        sections: one for each module that has decisions.

    """

    sections: Sequence[Section] = field(default=())

    def with_section(self, section: Section, *, beside: Collection[str] = ()) -> "Store":
        """Return a store in which this section replaces all with its path, LLVM version, level, kind of keys and phase.

        A section without decisions only removes. A source that a build compiles with several sets of options is several
        modules: ``beside`` holds the digests of the others, whose sections stay.
        """
        heading = section.heading
        others = set(beside) - {heading.digest}
        kept = [
            each for each in self.sections if _module(each.heading) != _module(heading) or each.heading.digest in others
        ]
        return Store([*kept, section] if section.decisions or section.passes else kept)

    def section_for(self, heading: Heading) -> Section | None:
        """Choose the section for a compilation; ``None`` if no section fits.

        A section fits if level, kind of keys and phase are equal, and the digest or the last component of the path. The
        best has, in this order: the same LLVM version, the same digest, the most equal components at the path's end.
        Of equally good sections the first counts.
        """
        fitting = [section for section in self.sections if _fits(section.heading, heading)]
        return max(fitting, key=lambda section: _quality(section.heading, heading), default=None)

    def mismatch(self, heading: Heading) -> str:
        """Tell people why the decisions about a module do not apply to it; empty if its path has none."""
        full = [each.heading for each in self.sections if each.decisions or each.passes]
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


def _fits(section: Heading, wanted: Heading) -> bool:
    if (section.level, section.by, section.phase) != (wanted.level, wanted.by, wanted.phase):
        return False
    return _same_digest(section, wanted) or _equal_components(section.path, wanted.path) > 0


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

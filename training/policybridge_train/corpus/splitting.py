"""How cases are split into parts: by project, by file where there are too few projects, or by the user's own list."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Final

from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_train.corpus.parts import Part, number_of, part_of

_NEEDED: Final = frozenset({Part.TRAINING, Part.VALIDATION})


@dataclass(frozen=True)
class Split:
    """Tells the part of a module, or of another case, by its name and its project.

    Attributes:
        rows: parts with the name or pattern of their cases. A name counts before all patterns, of which the first
            counts. ``None``: the names of the projects decide (`part_of`).

    """

    rows: Sequence[tuple[Part, str]] | None = None

    @classmethod
    def of(cls, projects: Mapping[str, str]) -> "Split":
        """Split by project; by file if the projects give no case to learn from, or none to choose versions by.

        Args:
            projects: of each case, by its name.

        Raises:
            InvalidError: there are fewer than two cases.

        """
        if len(projects) < len(_NEEDED):
            raise InvalidError(
                f"a split needs two cases, to learn from and to choose versions by; there are {len(projects)}: add "
                "modules to the corpus, or let the patterns select more"
            )
        if {part_of(project) for project in projects.values()} >= _NEEDED:
            return cls()
        parts = {name: part_of(name) for name in sorted(projects, key=number_of)}
        if not set(parts.values()) >= _NEEDED:
            parts |= dict(zip(parts, (Part.VALIDATION, Part.TRAINING), strict=False))
        return cls([(part, name) for name, part in parts.items()])

    @classmethod
    def read(cls, path: Path) -> "Split":
        """Read a list: a line for each row, the part and the name or pattern; ``#`` begins a comment.

        Raises:
            InvalidError: a line is no row; the message has its number.
            NotFoundError: there is no such file.

        """
        try:
            lines = path.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
        except OSError as error:
            raise NotFoundError(f"the split {path} cannot be read: {error.strerror}") from None
        numbered = enumerate(map(str.strip, lines), 1)
        return cls([_row(path, number, line) for number, line in numbered if line and not line.startswith("#")])

    def write(self, path: Path) -> None:
        """Write the rows as `read` takes them."""
        text = "".join(f"{part.value} {name}\n" for part, name in self.rows or ())
        path.write_text(text, encoding="utf-8", errors="surrogateescape")

    @cached_property
    def _named(self) -> Mapping[str, Part]:
        """The rows by their names, of equal ones the first."""
        return {name: part for part, name in reversed(self.rows or ())}

    def part(self, name: str, project: str) -> Part:
        """Give the part of a case.

        Raises:
            InvalidError: no row matches its name.

        """
        if self.rows is None:
            return part_of(project)
        found = self._named.get(name) or next((part for part, pattern in self.rows if fnmatchcase(name, pattern)), None)
        if found is None:
            raise InvalidError(f"the split has no line for {name}; a last line 'training *' takes all others")
        return found


def _row(path: Path, number: int, line: str) -> tuple[Part, str]:
    word, _, pattern = line.partition(" ")
    if word not in {part.value for part in Part} or not pattern.strip():
        parts = ", ".join(part.value for part in Part)
        raise InvalidError(f"{path}:{number}: {line!r} is not PART PATTERN, as in 'held-out tests/*'; parts: {parts}")
    return Part(word), pattern.strip()

"""The portable forms of a version, which its clients evaluate themselves."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

from policybridge_core.digest import content_digest


@dataclass(frozen=True)
class FormFile:
    """The form of one model.

    Attributes:
        data: its bytes.
        digest: ``sha256:`` and hexadecimal digits, over the bytes.

    """

    data: bytes
    digest: str

    @classmethod
    def of(cls, data: bytes) -> "FormFile":
        """Make the file of a form's bytes."""
        return cls(data, content_digest(data))


@dataclass(frozen=True)
class Forms:
    """The forms of a version's models.

    Attributes:
        by_kind: by the kind of their decisions; that of an only model by the empty name. Models that have none are left
            out.

    """

    by_kind: Mapping[str, FormFile]

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self.by_kind)

    def without(self, kinds: Container[str]) -> "Forms":
        """Give the forms of the other kinds."""
        if not any(kind in kinds for kind in self.by_kind):
            return self
        return Forms({kind: each for kind, each in self.by_kind.items() if kind not in kinds})

    def data(self, digest: str) -> bytes | None:
        """Give the form of a digest; ``None``: it is of another version."""
        return next((each.data for each in self.by_kind.values() if each.digest == digest), None)


NO_FORMS: Final = Forms({})
"""Those of a version whose clients always ask."""

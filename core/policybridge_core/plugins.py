"""Swappable parts: one visible table per seam, name → import string, loaded when first needed.

Other distributions extend a table by entry points of the group that the table names.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from policybridge_core.errors import NotFoundError, PreconditionError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

_TARGET: Final = re.compile(r"([\w.]+)(?::(\w+))?(?: \[([\w,-]+)\])?")


@dataclass(frozen=True)
class Table:
    """The parts of one seam.

    Attributes:
        kind: what error messages call a part.
        group: the entry-point group by which other distributions add parts.
        own: our parts, name → ``module:attribute [extra]``, as entry points are written; ``extra`` is the optional
            dependency of this distribution that the part needs.

    """

    kind: str
    group: str
    own: Mapping[str, str]

    def names(self) -> list[str]:
        """Give all names: ours and those of installed distributions."""
        return sorted({*self.own, *(entry.name for entry in _entry_points(self.group))})

    def load(self, name: str) -> object:
        """Import the part called ``name``: the attribute after the colon of its import string, or the module.

        Raises:
            NotFoundError: there is none of that name; the message lists those that there are.
            PreconditionError: it needs a package that is not installed; the message says which command installs it.

        """
        target = self.own.get(name) or self._extension(name)
        match = _TARGET.fullmatch(target)
        if match is None:
            raise NotFoundError(f"the {self.kind} {name!r} is registered as {target!r}; MODULE:ATTRIBUTE is right")
        module, attribute, extra = match.groups()
        try:
            loaded = import_module(module)
        except ModuleNotFoundError as error:
            where = f": pip install 'policybridge[{extra or 'all'}]'" if name in self.own else ""
            raise PreconditionError(
                f"the {self.kind} {name!r} needs the Python package {error.name!r}{where}"
            ) from error
        return getattr(loaded, attribute) if attribute else loaded

    def _extension(self, name: str) -> str:
        for entry in _entry_points(self.group):
            if entry.name == name:
                return entry.value
        raise NotFoundError(f"unknown {self.kind} {name!r}; there are {', '.join(self.names())}")


def _entry_points(group: str) -> "EntryPoints":
    # Imported late, because it takes 20 ms, and every compile that a host runs would wait for it.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return entry_points(group=group)

"""Replaceable parts: one visible table per seam, name → import string, imported when first needed.

Other distributions add parts to a table by entry points of the group that the table names.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_core.installed import may_extend
from policybridge_core.text import meant

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

_NOT_IN_CLIENT: Final = ("policybridge_server", "policybridge_train", "policybridge_bench")
"""Packages of the distribution policybridge that policybridge-client lacks."""

_TARGET: Final = re.compile(r"([\w.]+)(?::(\w+))?(?: \[([\w,-]+)\])?")


@dataclass(frozen=True)
class Table:
    """The parts of one seam. As a container it holds the parts' names, so that it serves as ``choices`` of argparse.

    Attributes:
        kind: the word for a part in error messages.
        group: the entry-point group with which other distributions add parts.
        own: our parts, name → ``module:attribute [extra]``, as entry points are written; ``extra`` is the optional
            dependency of this distribution that the part needs.

    """

    kind: str
    group: str
    own: Mapping[str, str]

    def names(self) -> list[str]:
        """Give all names: ours and those of installed distributions."""
        return sorted({*self.own, *(entry.name for entry in _entry_points(self.group))})

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        # Our own first: looking at the entry points of all installed distributions takes milliseconds.
        return name in self.own or name in self.names()

    def load(self, name: str) -> object:
        """Import the part called ``name``: the attribute after the colon of its import string, or the module.

        Raises:
            NotFoundError: no part has that name, and the message lists all names; or the part's entry point names no
                module and attribute.
            PreconditionError: the part needs a package that is not installed. For our own parts the message has the
                command that installs it.

        """
        return load_part(self.own.get(name) or self._extension(name), f"the {self.kind} {name!r}", name in self.own)

    def _extension(self, name: str) -> str:
        for entry in _entry_points(self.group):
            if entry.name == name:
                return entry.value
        raise self._unknown(name)

    def check(self, name: str) -> None:
        """Check that there is a part called ``name``, without importing it.

        Raises:
            NotFoundError: no part has that name; the message gives the closest name, and all names.

        """
        if name not in self:
            raise self._unknown(name)

    def _unknown(self, name: str) -> NotFoundError:
        names = self.names()
        return NotFoundError(f"unknown {self.kind} {name!r}; {meant(name, names)}there are {', '.join(names)}")


def load_part(target: str, what: str, own: bool = True) -> object:
    """Import the part of the import string ``target``, ``module:attribute [extra]``.

    Args:
        target: the import string; without an attribute it names the module itself.
        what: the part in error messages.
        own: whether the part belongs to this project, so that an extra installs the missing package.

    Raises:
        NotFoundError: ``target`` is not an import string.
        PreconditionError: a package is not installed, or is too old for generated code.

    """
    match = _TARGET.fullmatch(target)
    if match is None:
        raise NotFoundError(f"{what} is registered as {target!r}; MODULE:ATTRIBUTE is right")
    module, attribute, extra = match.groups()
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        command = f": pip install 'policybridge[{extra or 'all'}]'" if own else ""
        if own and missing.partition(".")[0] in _NOT_IN_CLIENT:
            raise PreconditionError(f"{what} comes with the distribution policybridge{command}") from error
        raise PreconditionError(f"{what} needs the Python package {missing!r}{command}") from error
    except Exception as error:
        # Imported late: only a broken installation needs it.
        from policybridge_core.stubs import stub_mismatch  # noqa: PLC0415

        reason = stub_mismatch(error)
        if reason is None:
            raise
        raise PreconditionError(f"{what} cannot be loaded: {reason}") from error
    return getattr(loaded, attribute) if attribute else loaded


def _entry_points(group: str) -> "EntryPoints | tuple[()]":
    if not may_extend(group):
        return ()
    # Imported late: import and reading take a tenth of a second where much is installed.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return entry_points(group=group)

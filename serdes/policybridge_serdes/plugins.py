"""Swappable parts: one visible table per seam, name → import string, loaded when first needed.

Other distributions extend a table by entry points of the group that the table names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from policybridge_serdes.errors import NotFoundError, PreconditionError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


@dataclass(frozen=True)
class Table:
    """The parts of one seam: what they are called in messages, who may add to them, and our own."""

    kind: str
    group: str
    own: Mapping[str, str]

    def names(self) -> list[str]:
        """Give all names, ours and those of installed extensions."""
        return sorted({*self.own, *(entry.name for entry in _entry_points(self.group))})

    def load(self, name: str) -> object:
        """Import the part called ``name``: what stands behind the colon of its import string, or the module.

        Raises:
            NotFoundError: nobody offers it; the message lists what is there.
            PreconditionError: it needs a package that is not installed; the message says which command installs it.

        """
        target = self.own.get(name) or self._extension(name)
        module, _, attribute = target.partition(":")
        try:
            loaded = import_module(module)
        except ModuleNotFoundError as error:
            raise PreconditionError(
                f"the {self.kind} {name!r} needs the Python package {error.name!r}: "
                f"pip install 'policybridge[{_extra(module)}]'"
            ) from error
        return getattr(loaded, attribute) if attribute else loaded

    def _extension(self, name: str) -> str:
        for entry in _entry_points(self.group):
            if entry.name == name:
                return entry.value
        raise NotFoundError(f"unknown {self.kind} {name!r}; there are {', '.join(self.names())}")


def _extra(module: str) -> str:
    room, _, leaf = module.partition(".")
    part = leaf.removeprefix("backends.").removeprefix("ledger.").removeprefix("inference.")
    if part in ("http", "litert", "onnx", "parquet", "tensorflow", "torch"):
        return part
    return {"policybridge_bench": "bench", "policybridge_server": "server"}.get(room, "all")


def _entry_points(group: str) -> "EntryPoints":
    # Imported late: it takes 20 ms, and every compile that a host runs would wait for it.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return entry_points(group=group)

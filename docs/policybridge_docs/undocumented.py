"""Finds public names without a docstring in the packages of the reference."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import griffe

from policybridge_docs.links import ROOT

_PACKAGES: Final = {
    "policybridge_core": "core",
    "policybridge_serdes": "serdes",
    "policybridge_client": "clients/python",
    "policybridge_server": "server",
    "policybridge_train": "training",
}


def undocumented(paths: Iterable[str], root: Path = ROOT) -> Sequence[str]:
    """Give the public names at and below the import paths ``paths`` that have no docstring.

    An attribute is documented by a text below it, or in ``Attributes`` or ``Args`` of its class. Members of an `Enum`
    are described by their names.
    """
    loader = griffe.GriffeLoader(search_paths=[root / folder for folder in _PACKAGES.values()])
    for package in _PACKAGES:
        loader.load(package)
    loader.resolve_aliases()
    return [name for path in paths for name in _below(_final(loader.modules_collection[path]))]


def _below(described: griffe.Object) -> Iterator[str]:
    if not described.has_docstring:
        yield described.path
    attributes = set(_attributes(described))
    for name, member in described.members.items():
        if member.is_alias or name.startswith("_"):
            continue
        if not member.is_attribute:
            yield from _below(_final(member))
        elif not (member.has_docstring or name in attributes or _is_enum(described)):
            yield member.path


def _final(found: griffe.Object | griffe.Alias) -> griffe.Object:
    return found.final_target if isinstance(found, griffe.Alias) else found


def _is_enum(described: griffe.Object) -> bool:
    return isinstance(described, griffe.Class) and any(str(base).endswith("Enum") for base in described.bases)


def _attributes(described: griffe.Object) -> Iterator[str]:
    """Give the names in ``Attributes`` and ``Args`` of a docstring."""
    if described.docstring:
        for section in described.docstring.parse("google"):
            if isinstance(section, griffe.DocstringSectionAttributes | griffe.DocstringSectionParameters):
                yield from (attribute.name for attribute in section.value)

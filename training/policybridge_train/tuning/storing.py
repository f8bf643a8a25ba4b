"""Searches and the store: the decisions with which a search begins, and those that it keeps."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from policybridge_client.decisions import (
    By,
    Decision,
    Heading,
    Section,
    Store,
    path_in_store,
    read_store,
    update_store,
)
from policybridge_core.errors import NotFoundError
from policybridge_train.compiling.module import Module
from policybridge_train.tuning.flips import Decided, passes_of
from policybridge_train.tuning.search import Search

_INTERVAL: Final = 2.0
"""Seconds from one writing of the store to the next, at least: it is written whole, and may be large."""

_SHARE: Final = 20
"""How much longer than a writing is the time to the next."""


class _Offer(NamedTuple):
    """What one module has for its section; the greatest of them is the section.

    Modules of one source, as a library has them for a shared and for a static one, may be the same before optimisation,
    and so have one section. A program that became larger with it rules; else the module that has won most.
    """

    refused: bool
    won: int
    module: tuple[str, str]
    section: Section


class StoreKeeper:
    """Writes into a store what searches have found; others may write into it at the same time.

    Args:
        path: the store; it need not exist.
        llvm: the major version that compiles.
        by: the kind of the keys.
        root: the folder to which the modules' sources are relative; without one, modules go by their names.

    Raises:
        InvalidError: the file is no store. It is left as it is.

    """

    def __init__(self, path: Path, llvm: int, by: By, root: Path | None = None) -> None:
        self._path = path
        self._llvm = llvm
        self._by = by
        self._root = root
        self._old = Store()
        with suppress(NotFoundError):
            self._old = read_store(path)
        self._found: dict[Heading, Section] = {}
        self._shared: dict[Heading, dict[tuple[str, str], _Offer]] = {}
        self._expected: Counter[str] = Counter()
        self._digests: dict[str, dict[tuple[str, str], str]] = {}
        self._next_write = monotonic() + _INTERVAL

    def expect(self, modules: Iterable[Module]) -> None:
        """Say which modules the search has, so that those of one source do not replace each other in the store."""
        self._expected.update(self._path_of(module) for module in modules)

    def heading(self, module: Module, search: Search) -> Heading:
        """Name the section of a module."""
        return Heading(self._llvm, search.level, self._by, search.digest or None, self._path_of(module), module.phase)

    def _path_of(self, module: Module) -> str:
        return module.name if self._root is None else path_in_store(self._root / module.source, self._path)

    def start(self, module: Module, search: Search) -> Decided | None:
        """Give the store's decisions for a module, or for the module before an edit."""
        heading = self.heading(module, search)
        section = self._old.section_for(heading)
        if section is None or section.heading.path != heading.path:
            return None
        return Decided(dict(section.answers), passes_of(section.passes, search.sizes))

    def kept(self, module: Module, search: Search) -> Section | None:
        """Give the section that the store gets for a module; see `_Offer`."""
        offers = self._shared.get(self.heading(module, search))
        return max(offers.values()).section if offers else None

    def section(self, module: Module, search: Search, decided: Decided) -> Section:
        """Give the section with these decisions of a module's search."""
        names = search.names
        decisions = tuple(Decision(key, inline, *names.get(key, ())) for key, inline in decided.inlining.items())
        return Section(self.heading(module, search), decisions, tuple(decided.choices()))

    def put(self, module: Module, search: Search) -> None:
        """Keep a search's decisions; they are in the file a moment later.

        The store's earlier decisions stay until they have been compiled.
        """
        if search.start is not None:
            return
        section = self.section(module, search, search.shipped)
        heading = section.heading
        won = search.default_text - search.best_text
        offers = self._shared.setdefault(heading, {})
        own = _identity(module)
        offers[own] = _Offer(search.is_refused, won, own, section)
        self._found[heading] = max(offers.values()).section
        self._digests.setdefault(heading.path, {})[own] = search.digest
        if monotonic() > self._next_write:
            self.write()

    def write(self) -> None:
        """Write the file, if there is anything new.

        Raises:
            InvalidError: the file is no store any more. It is left as it is.
            OSError: it cannot be written; the old one stands.

        """
        begun = monotonic()
        if self._found:
            update_store(self._path, self._joined)
            self._found = {}
        self._next_write = monotonic() + max(_INTERVAL, _SHARE * (monotonic() - begun))

    def _joined(self, store: Store) -> Store:
        there: dict[str, set[str]] = {}
        for section in store.sections:
            there.setdefault(section.heading.path, set()).add(section.heading.digest or "")
        for section in [*self._found.values(), *self._without_decisions()]:
            path = section.heading.path
            beside = set(self._digests[path].values())
            if len(self._digests[path]) < self._expected[path]:
                # Some are of other modules of this source, whose digests are not known yet.
                beside |= there.get(path, set())
            store = store.with_section(section, beside=beside)
        return store

    def _without_decisions(self) -> Iterator[Section]:
        """Give those of the written paths: none stays in the file before another module of its source has decisions."""
        paths = {heading.path for heading in self._found}
        for heading, offers in self._shared.items():
            section = max(offers.values()).section
            if heading.path in paths and section.is_empty:
                yield section


def _identity(module: Module) -> tuple[str, str]:
    """Tell a module from all others of the search: ThinLTO has one of a name for each program."""
    return module.name, module.digest if module.phase == "link" else ""

"""Functions that several modules of a program have: inline functions and templates, of which the linker keeps one.

A module that gets rid of its copy wins nothing for the program while another module has one. So such a function counts
in each module for its part: a k-th, where k modules of the program have it by LLVM's own decisions.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from threading import Lock

import msgspec

from policybridge_train.compiling.module import Program
from policybridge_train.tuning.search import Search


class Sharable(msgspec.Struct, frozen=True):
    """The functions of a module that other modules may have, too.

    Attributes:
        own: those that it has by LLVM's own decisions.
        called: those that it calls and has not, but could have.

    """

    own: frozenset[str]
    called: frozenset[str]

    @classmethod
    def of(cls, search: Search) -> "Sharable":
        """Give those of a search that has begun."""
        own = frozenset(search.weak)
        called = {site.callee for sites in search.sites.values() for site in sites}
        return cls(own, frozenset(called - own - search.sizes.keys()))


class Sharing:
    """Counts in how many modules of each program a function is. Usable from any thread.

    Args:
        programs: linked from the modules.

    """

    def __init__(self, programs: Sequence[Program]) -> None:
        self._lock = Lock()
        self._counts: dict[str, list[Counter[str]]] = {}
        for program in programs:
            count: Counter[str] = Counter()
            for name in set(program.modules):
                self._counts.setdefault(name, []).append(count)

    def add(self, module: str, weak: Iterable[str]) -> None:
        """Count the functions that a module has by LLVM's own decisions."""
        names = set(weak)
        with self._lock:
            for count in self._counts.get(module, ()):
                count.update(names)

    def of(self, module: str, sharable: Sharable) -> dict[str, int]:
        """Give in how many modules a module's functions are, where those are several.

        Of several programs that have the module, it is the one in which the function is shared least.
        """
        with self._lock:
            counts = self._counts.get(module, ())
            found = {
                name: min((count[name] for count in counts), default=0) + (name in sharable.called)
                for name in sharable.own | sharable.called
            }
        return {name: count for name, count in found.items() if count > 1}

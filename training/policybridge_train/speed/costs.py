"""Which functions a program has of each module, and their costs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from policybridge_train.compiling.result import CompileResult
from policybridge_train.tasks.callgrind import Counted


@dataclass(frozen=True)
class Owned:
    """The functions of one module, as its program has them.

    Attributes:
        names: the functions that the program has of this module.
        copies: of those that other modules have, too, the bytes that the program gets if this module drops its own.
        elsewhere: the functions of which the linker keeps another module's. Their cycles depend on this one's calls.
        known: the functions of all modules by LLVM's own decisions. A further one is that of the module that has it.

    """

    names: set[str]
    copies: dict[str, int]
    elsewhere: set[str]
    known: Collection[str]

    @property
    def shared(self) -> set[str]:
        """The functions that other modules have, too."""
        return self.elsewhere.union(self.copies)

    def costs(self, counted: Counted, there: Collection[str]) -> dict[str, float]:
        """Give the cycles of functions in a run, with what these call outside the modules.

        Args:
            counted: of the run.
            there: the functions that its object has. The program may run another's in the place of one that is gone.

        """
        further = (name for name in there if name not in self.known)
        return {name: _cost(name, counted) for name in self.names.union(self.elsewhere, further)}

    def bytes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Give the bytes that functions take in the program, where an object has these sizes."""
        return {**self.copies, **{name: size for name, size in sizes.items() if name not in self.elsewhere}}


def owned(results: Mapping[str, CompileResult]) -> dict[str, Owned]:
    """Tell the functions of each module.

    Of a function that is weak everywhere the linker keeps the first. Others of one name cannot be told apart.
    """
    holders: dict[str, list[str]] = {}
    for module, result in results.items():
        for name in result.costs:
            holders.setdefault(name, []).append(module)
    weak = {module: frozenset(result.log.weak if result.log else ()) for module, result in results.items()}
    found = {module: Owned(set(), {}, set(), holders.keys()) for module in results}
    for name, (first, *others) in holders.items():
        if others and not all(name in weak[module] for module in (first, *others)):
            continue
        found[first].names.add(name)
        for module in others:
            found[first].copies.setdefault(name, int(results[module].costs[name]))
            found[module].elsewhere.add(name)
    return found


def shares(results: Mapping[str, CompileResult], counted: Counted, owned: Mapping[str, Owned]) -> dict[str, float]:
    """Give the share of the program's cost that each function has by itself, with what it calls in other objects."""
    total = max(1, counted.total)
    return {name: _cost(name, counted) / total for module in results for name in owned[module].names}


def _cost(name: str, counted: Counted) -> float:
    return float(counted.own.get(name, 0) + counted.outside.get(name, 0))

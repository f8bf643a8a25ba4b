"""Which functions of a program have costs of their own."""

from collections.abc import Collection, Mapping

from policybridge_train.compiling.result import CompileResult
from policybridge_train.tasks.callgrind import Counted


def owned(results: Mapping[str, CompileResult]) -> dict[str, frozenset[str]]:
    """Give the functions of each module whose cycles are its own.

    Of a function that is weak everywhere the linker keeps the first. Others of one name cannot be told apart.
    """
    holders: dict[str, list[str]] = {}
    for module, result in results.items():
        for name in result.costs:
            holders.setdefault(name, []).append(module)
    found: dict[str, set[str]] = {module: set() for module in results}
    weak = {module: frozenset(result.log.weak if result.log else ()) for module, result in results.items()}
    for name, modules in holders.items():
        if len(modules) == 1 or all(name in weak[module] for module in modules):
            found[modules[0]].add(name)
    return {module: frozenset(names) for module, names in found.items()}


def shares(
    results: Mapping[str, CompileResult], counted: Counted, owned: Mapping[str, Collection[str]]
) -> dict[str, float]:
    """Give the share of the program's cost that each function has by itself, with what it calls in other objects."""
    names = {name for module in results for name in owned[module]}
    cost = {name: counted.own.get(name, 0) + counted.outside.get(name, 0) for name in names}
    return {name: value / max(1, counted.total) for name, value in cost.items()}

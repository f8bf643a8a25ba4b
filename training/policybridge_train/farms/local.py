"""The compilers of this machine, started by the threads that ask for them."""

import os
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from policybridge_core.errors import PreconditionError
from policybridge_train.farms.contract import FarmOptions, Job, Leading, Machine, Recipe, Serving, Shared
from policybridge_train.processes.process import Running

T = TypeVar("T")


class Tools:
    """The tools of a machine, each made once. Usable from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: dict[Hashable, Any] = {}

    def of(self, recipe: Recipe[T], machine: Machine) -> T:
        """Give the tool of a recipe."""
        with self._lock:
            if recipe not in self._made:
                self._made[recipe] = recipe.make(machine)
            made: T = self._made[recipe]
            return made


@dataclass(frozen=True)
class Held(Generic[T]):
    """A value that is here already."""

    value: T

    def at(self, _: Machine) -> T:
        """Give it."""
        return self.value


class LocalMachine:
    """See `Machine`. The server is the leader itself."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.leading: Leading | None = None
        self._tools = Tools()

    def tool(self, recipe: Recipe[T]) -> T:
        """Give the tool of a recipe."""
        return self._tools.of(recipe, self)

    def file(self, name: str, digest: str, content: Shared[bytes]) -> Path:  # noqa: ARG002 - of `Machine`
        """Raise: files that are shared here are at their own paths."""
        raise PreconditionError(f"{name} was shared by another farm, and is not known on this one")

    def serving(self, address: str, policy: str, *, again: bool = False) -> Serving:  # noqa: ARG002 - of `Machine`
        """Give the server itself; started again, if it has died."""
        if self.leading is None or self.leading.leader.address != address:
            return Serving(address)
        if again:
            self.leading.ensure()
        return Serving(address, self.leading.leader.ledger)


class LocalFarm:
    """See `Farm`."""

    host: str | None = None

    def __init__(self, options: FarmOptions = FarmOptions()) -> None:  # noqa: B008 - it cannot be changed
        self.slots = options.jobs or os.cpu_count() or 1
        self.running = Running()
        self._machine = LocalMachine(self.running)

    def lead(self, leading: Leading) -> None:
        """Name the server."""
        self._machine.leading = leading

    def share(self, value: T) -> Shared[T]:
        """Hold the value."""
        return Held(value)

    def share_file(self, path: Path) -> Shared[Path]:
        """Hold the path."""
        return Held(path)

    def do(self, job: Job[T]) -> T:
        """Run the job in this thread."""
        return job.run(self._machine)

    def __enter__(self) -> "LocalFarm":
        return self

    def __exit__(self, *_: object) -> None:
        self.running.end()

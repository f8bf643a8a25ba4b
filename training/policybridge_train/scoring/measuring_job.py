"""A module under one contender as a job, so that any machine of a farm does it."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from policybridge_core.errors import UnavailableError
from policybridge_train.compiling.compiler import same_compiler
from policybridge_train.compiling.job import Limits, Status
from policybridge_train.compiling.shared import SharedModule
from policybridge_train.farms.contract import Farm, Place, Shared
from policybridge_train.scoring.contenders import Contender, Served, Stored
from policybridge_train.scoring.measured import Bench, Measured

_TRIES: Final = 5


@dataclass(frozen=True)
class BenchRecipe:
    """How the bench of a place is made; see `Bench`. ``version`` is what the compiler says of itself."""

    compiler: str
    version: str
    limits: Limits
    spills: bool

    def make(self, place: Place) -> Bench:
        """Make it."""
        return Bench(same_compiler(self.compiler, self.version), self.limits, place.running, self.spills)


@dataclass(frozen=True)
class _StoreRecipe:
    """How a store is read at a place: once, although it decides about many modules."""

    contender: Stored
    file: Shared[Path] = field(compare=False)

    def make(self, place: Place) -> Stored:
        file = self.file.at(place)
        return self.contender if file == self.contender.path else replace(self.contender, path=file)


@dataclass(frozen=True)
class SharedContender:
    """A contender for jobs.

    Attributes:
        store: its file, if it has one.

    """

    contender: Contender
    store: Shared[Path] | None = None

    @classmethod
    def of(cls, contender: Contender, farm: Farm) -> "SharedContender":
        """Share a contender."""
        return cls(contender, farm.share_file(contender.path) if isinstance(contender, Stored) else None)

    def at(self, place: Place) -> Contender:
        """Give the contender as it is at a place."""
        if isinstance(self.contender, Stored) and self.store is not None:
            return place.tool(_StoreRecipe(self.contender, self.store))
        if isinstance(self.contender, Served):
            return replace(self.contender, server=place.serving(self.contender.server, self.contender.name).address)
        return self.contender

    def is_revived(self, place: Place) -> bool:
        """Tell whether the server of a place had died, and is there again."""
        asked = self.contender
        try:
            return isinstance(asked, Served) and place.serving(asked.server, asked.name, again=True).revived
        except UnavailableError:
            return False


class Objected(NamedTuple):
    """What a compilation came to, and its object; empty where there is none."""

    measured: Measured
    content: bytes


@dataclass(frozen=True)
class Measuring:
    """Compiles a module under a contender, and again where the server died meanwhile."""

    bench: BenchRecipe
    contender: SharedContender
    module: SharedModule

    def run(self, place: Place) -> Objected:
        """Compile and measure."""
        bench = place.tool(self.bench)
        with TemporaryDirectory(prefix="policybridge-score-") as folder:
            output = Path(folder) / "object.o"
            for _ in range(_TRIES):
                measured = self._measured(bench, place, output)
                if measured.ok or not self.contender.is_revived(place):
                    break
            return Objected(measured, output.read_bytes() if measured.ok else b"")

    def _measured(self, bench: Bench, place: Place, output: Path) -> Measured:
        try:
            return bench.measure(self.contender.at(place), self.module.at(place), output)
        except UnavailableError as error:
            return Measured(Status.FAILED.value, message=str(error))

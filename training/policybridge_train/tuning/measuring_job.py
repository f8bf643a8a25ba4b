"""Compiles of a search as jobs, so that any machine of a farm does them."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from policybridge_client.decisions import By
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.plugins import find_plugin
from policybridge_core.errors import NotFoundError
from policybridge_train.compiling.compiler import Compiler, same_compiler
from policybridge_train.compiling.job import Limits
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.shared import SharedModule
from policybridge_train.farms.contract import Farm, Place
from policybridge_train.processes.pool import Running
from policybridge_train.tuning.measuring import Decisions, Measurement, Measurer, PluginMeasurer
from policybridge_train.tuning.sequence import SequenceMeasurer


def find_measurer(compiler: Compiler, plugins: Path | None, limits: Limits, running: Running) -> Measurer:
    """Give what compiles with decisions: by the plugin, where the compiler loads one, else in the interactive mode.

    Raises:
        NotFoundError: ``plugins`` has no plugin that the compiler loads.

    """
    plugin = find_plugin(CompilerCommand.of([*compiler.start, "-cc1"]), plugins)
    if plugin is not None:
        return PluginMeasurer(compiler, plugin, limits, running)
    if plugins is not None:
        raise NotFoundError(f"{plugins} holds no policybridge-inliner-{compiler.major}.so that {compiler.name} loads")
    return SequenceMeasurer(compiler, limits, running)


@dataclass(frozen=True)
class MeasurerRecipe:
    """How a measurer is made.

    Attributes:
        compiler: the name or path of the compiler.
        version: what it says of itself.
        plugins: the folder of the plugin; ``None`` to do without.

    """

    compiler: str
    version: str
    plugins: Path | None
    limits: Limits

    def make(self, place: Place) -> Measurer:
        """Make the measurer of a place."""
        compiler = same_compiler(self.compiler, self.version)
        if self.plugins is None:
            return SequenceMeasurer(compiler, self.limits, place.running)
        return find_measurer(compiler, self.plugins, self.limits, place.running)


class _Made(NamedTuple):
    measured: Measurement
    content: bytes


@dataclass(frozen=True)
class _Measuring:
    recipe: MeasurerRecipe
    module: SharedModule
    decisions: Decisions
    keep: bool

    def run(self, place: Place) -> _Made:
        """Compile once; the object comes with the result where it is wanted."""
        measurer, module = place.tool(self.recipe), self.module.at(place)
        if not self.keep:
            return _Made(measurer.measure(module, self.decisions), b"")
        with TemporaryDirectory(prefix="policybridge-tune-") as name:
            kept = Path(name) / "object"
            return _Made(measurer.measure(module, self.decisions, kept), kept.read_bytes())


@dataclass(frozen=True)
class FarmMeasurer:
    """A `Measurer` whose compiles are done by a farm."""

    farm: Farm
    recipe: MeasurerRecipe
    by: By

    @classmethod
    def of(cls, measurer: Measurer, compiler: Compiler, limits: Limits, farm: Farm) -> "FarmMeasurer":
        """Do the compiles of a measurer by a farm."""
        plugins = measurer.plugin.parent if isinstance(measurer, PluginMeasurer) else None
        return cls(farm, MeasurerRecipe(compiler.name, compiler.version, plugins, limits), measurer.by)

    def measure(self, module: Module, decisions: Decisions, keep: Path | None = None) -> Measurement:
        """Compile once; see `Measurer`."""
        shared = SharedModule.of(module, self.farm)
        done = self.farm.do(_Measuring(self.recipe, shared, decisions, keep is not None))
        if keep is not None:
            keep.write_bytes(done.content)
        return done.measured

"""A module that jobs of a farm compile, wherever they run."""

from dataclasses import dataclass
from pathlib import Path

from policybridge_train.compiling.module import Module
from policybridge_train.farms.contract import Farm, Place, Shared


@dataclass(frozen=True)
class PlacedModule(Module):
    """A module whose bitcode lies elsewhere than in its corpus."""

    file: Path = Path()

    @property
    def bitcode(self) -> Path:
        """The file of the bitcode."""
        return self.file


@dataclass(frozen=True)
class SharedModule:
    """A module for jobs."""

    module: Module
    content: Shared[Path]

    @classmethod
    def of(cls, module: Module, farm: Farm) -> "SharedModule":
        """Share a module.

        Raises:
            OSError: its bitcode cannot be read.

        """
        return cls(module, farm.share_file(module.bitcode))

    def at(self, place: Place) -> Module:
        """Give the module as it is at a place."""
        file = self.content.at(place)
        if file == self.module.bitcode:
            return self.module
        one = self.module
        return PlacedModule(one.name, one.folder, one.arguments, one.project, one.source, one.language, file)

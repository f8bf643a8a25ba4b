"""Jobs for tests, which other processes import."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from policybridge_core.errors import NotFoundError
from policybridge_train.compiling.process import Limits, compile_by
from policybridge_train.compiling.result import CompileResult
from policybridge_train.farms.contract import Place, Shared


@dataclass(frozen=True)
class Reading:
    """Gives the content of a file. The first process that runs it is killed."""

    file: Shared[Path]
    mark: Path

    def run(self, place: Place) -> str:
        text = self.file.at(place).read_text()
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return text


@dataclass(frozen=True)
class Sleeping:
    """A compiler that only sleeps; it makes a file before."""

    mark: Path

    def run(self, place: Place) -> CompileResult:
        return compile_by(["sh", "-c", 'touch "$0"; exec sleep 600', str(self.mark)], Limits(), running=place.running)


@dataclass(frozen=True)
class LackingRecipe:
    """A tool that cannot be made."""

    def make(self, place: Place) -> object:
        raise NotFoundError("there is no compiler 'c'")


@dataclass(frozen=True)
class Lacking:
    """A job whose tool cannot be made."""

    def run(self, place: Place) -> object:
        return place.tool(LackingRecipe())

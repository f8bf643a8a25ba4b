"""Jobs for tests, which other processes import."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from policybridge_core.errors import NotFoundError
from policybridge_train.compiling.limits import Limits
from policybridge_train.farms.contract import Machine, Shared
from policybridge_train.processes.process import Ended, compile_by


@dataclass(frozen=True)
class Reading:
    """Gives the content of a file. The first process that runs it is killed."""

    file: Shared[Path]
    mark: Path

    def run(self, machine: Machine) -> str:
        text = self.file.at(machine).read_text()
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return text


@dataclass(frozen=True)
class Sleeping:
    """A compiler that only sleeps; it makes a file before."""

    mark: Path

    def run(self, machine: Machine) -> Ended:
        return compile_by(["sh", "-c", 'touch "$0"; exec sleep 600', str(self.mark)], Limits(), running=machine.running)


@dataclass(frozen=True)
class LackingRecipe:
    """A tool that cannot be made."""

    def make(self, machine: Machine) -> object:
        raise NotFoundError("there is no compiler 'c'")


@dataclass(frozen=True)
class Lacking:
    """A job whose tool cannot be made."""

    def run(self, machine: Machine) -> object:
        return machine.tool(LackingRecipe())


@dataclass(frozen=True)
class Placing:
    """Tells where its file is, the inode of that, and its text."""

    file: Shared[Path]

    def run(self, machine: Machine) -> tuple[Path, int, str]:
        path = self.file.at(machine)
        return path, path.stat().st_ino, path.read_text()


@dataclass(frozen=True)
class Asking:
    """Tells the ledger of the server that has a policy on the node."""

    leader: str
    policy: str

    def run(self, machine: Machine) -> Path | None:
        return machine.serving(self.leader, self.policy).ledger

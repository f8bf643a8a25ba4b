"""A farm runs jobs: in this process, or on other machines.

A job is a value. The machine where it runs gives it tools, files and a policy server.
So the same job gives the same result on every machine that has the same compiler.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self, TypeVar

from policybridge_core.plugins import Table
from policybridge_train.processes.process import Running

FARMS: Final = Table(
    kind="farm of compilers",
    group="policybridge.farms",
    own={
        "local": "policybridge_train.farms.local:LocalFarm",
        "ray": "policybridge_train.farms.ray_farm.farm:RayFarm [ray]",
    },
)
"""Each is a class; it is called with `FarmOptions`, and raises a `PolicyBridgeError` if it cannot be used."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class FarmOptions:
    """A user's options for a farm.

    Attributes:
        address: of a cluster; each kind of farm has its own. Empty for none.
        jobs: compilers at a time, on all machines together; ``None`` for one on each core.
        memory: MiB that are set aside for each compiler.

    """

    address: str = ""
    jobs: int | None = None
    memory: int = 1024


@dataclass(frozen=True)
class Leader:
    """The server from which a farm's own servers take policies.

    Attributes:
        address: the server's address for compilers on this machine and in jobs.
        follow: where other machines reach it: ``grpc[s]:HOST:PORT``; empty if they cannot.
        ca: the PEM of its certificate authority; empty without TLS.
        token: lets a server follow it; empty if it wants none.
        ledger: the file with its sessions; ``None`` if this process cannot read it.

    """

    address: str
    follow: str = ""
    ca: bytes = b""
    token: str = ""
    ledger: Path | None = None


class Leading(Protocol):
    """A server that can be asked for being there."""

    @property
    def leader(self) -> Leader:
        """How it is reached."""
        ...

    def ensure(self) -> bool:
        """Start it again if it has died; tell whether it had."""
        ...


@dataclass(frozen=True)
class Serving:
    """The server that compilers of a machine ask.

    Attributes:
        address: for those compilers.
        ledger: the file with its sessions, if it has one that can be read here.

    """

    address: str
    ledger: Path | None = None


class Machine(Protocol):
    """Gives a job tools, files and a server where it runs. Usable from any thread."""

    @property
    def running(self) -> Running:
        """Where compilers are counted while they run."""
        ...

    def tool(self, recipe: "Recipe[T]") -> T:
        """Give the tool of a recipe; equal recipes have one tool on each machine.

        Raises:
            PolicyBridgeError: it cannot be made here.

        """
        ...

    def file(self, name: str, digest: str, content: "Shared[bytes]") -> Path:
        """Give a file with this content, which is fetched when it is not here yet."""
        ...

    def serving(self, address: str, policy: str, *, again: bool = False) -> Serving:
        """Give the server to ask instead of ``address``; it has the policy, ``NAME`` or ``NAME@VERSION``.

        Args:
            address: the leader's.
            policy: ``NAME`` or ``NAME@VERSION``.
            again: whether a compile has just failed: then a server that died is started again.

        Raises:
            UnavailableError: there is none, or it does not get the policy.

        """
        ...


class Recipe(Hashable, Protocol[T_co]):
    """How a tool that compiles is made, wherever it is needed."""

    def make(self, machine: Machine) -> T_co:
        """Make the tool; its compilers are counted in ``machine.running``.

        Raises:
            PolicyBridgeError: something is missing here, or is another version than where the job comes from.

        """
        ...


class Shared(Protocol[T_co]):
    """A value that many jobs have in common. It is sent to each machine once."""

    def at(self, machine: Machine) -> T_co:
        """Give the value."""
        ...


class Job(Protocol[T_co]):
    """Something that compiles, once or several times. It can be pickled, and so can its result."""

    def run(self, machine: Machine) -> T_co:
        """Do it. It may be run again where its machine was lost, so it changes nothing but its result."""
        ...


class Farm(Protocol):
    """Runs jobs. Usable from any thread; as a context manager it ends all compilers at its end."""

    @property
    def slots(self) -> int:
        """Compilers at a time, as known now; at least 1."""
        ...

    @property
    def running(self) -> Running:
        """When it is ended, all compilers of the farm are."""
        ...

    @property
    def host(self) -> str | None:
        """The address of this machine for servers of other machines; ``None`` without such machines."""
        ...

    def lead(self, leading: Leading) -> None:
        """Name the server whose policies the jobs ask for; at most once."""
        ...

    def share(self, value: T) -> Shared[T]:
        """Give a handle of a value for jobs."""
        ...

    def share_file(self, path: Path) -> Shared[Path]:
        """Give a handle of a file for jobs; its name stays, and its folder does not.

        Raises:
            OSError: it cannot be read.

        """
        ...

    def do(self, job: Job[T]) -> T:
        """Run a job, and wait for its result. Machines that are lost meanwhile cost time only.

        Raises:
            PreconditionError: the farm was ended.
            UnavailableError: no machine is left, or the job has lost one after another.
            Exception: the job's own error.

        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

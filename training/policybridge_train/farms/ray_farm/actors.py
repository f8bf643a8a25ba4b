"""The processes of a node: those that run compilers, and the one with the policy server."""

import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import ray

from policybridge_core.errors import NotFoundError, PolicyBridgeError, UnavailableError
from policybridge_serdes import PolicyReference
from policybridge_train.farms.contract import Job, Leader, Serving
from policybridge_train.farms.kept import KeptServer
from policybridge_train.farms.ray_farm.machine import NodeMachine

if TYPE_CHECKING:
    from ray.actor import ActorHandle

_LOOKED: Final = 0.02
"""Seconds between looks for a version that is on its way; it comes after about 0.1."""

_ARRIVES_WITHIN: Final = 60.0
"""Seconds after which a version that is not there will not come."""

_KEPT: Final = 1800
"""Seconds for which a node's ledger keeps sessions: a job reads its own when its compiler has ended."""

T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    """The result of a call. An error is a value, so that it arrives as it was raised."""

    value: T | None = None
    error: PolicyBridgeError | OSError | None = None

    @classmethod
    def of(cls, call: Callable[[], T]) -> "Answer[T]":
        """Call, and keep the value or the error. Ray shows unexpected errors with their tracebacks."""
        try:
            return cls(call())
        except (PolicyBridgeError, OSError) as error:
            return cls(error=error)

    def given(self) -> T:
        """Give the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value] # None may be a value


def node_folder(run: str) -> Path:
    """Give the folder of a run on the node where this is called; nobody else can open it.

    It has the node's id in its name, because one machine may have several nodes.
    """
    node = ray.get_runtime_context().get_node_id()
    folder = Path(gettempdir()) / f"policybridge-ray-{run}-{node[:16]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


class Compilers:
    """An actor that runs many compilers: Ray calls `do` in as many threads as it has slots.

    Args:
        run: the run's id, which names the folder of its processes on a node.
        server: the node's policy server.

    """

    def __init__(self, run: str, server: "ActorHandle[Any] | None") -> None:
        self._folder = node_folder(run)
        self._machine = NodeMachine(socket.gethostname(), self._folder / "files", server)

    def ready(self) -> bool:
        """Tell that this process runs."""
        return True

    def do(self, job: Job[T]) -> Answer[T]:
        """Run a job."""
        return Answer.of(lambda: job.run(self._machine))

    def end(self) -> None:
        """End all compilers, and those that would start later."""
        self._machine.running.end()
        shutil.rmtree(self._folder / "files", ignore_errors=True)
        with suppress(OSError):
            # Fails if the policy server still has files there; then the server removes the folder.
            self._folder.rmdir()


class NodeServer:
    """An actor with the policy server of a node, which follows the run's server.

    Args:
        run: the run's id.
        leader: the run's own server.

    """

    def __init__(self, run: str, leader: Leader) -> None:
        self._leader = leader
        # A folder of its own: the server of a process that was killed may still be at its end.
        self._folder = Path(mkdtemp(prefix="server-", dir=node_folder(run)))
        arguments = ["--follow", leader.follow, "--cache", str(self._folder / "cache"), "--ledger-max-age", str(_KEPT)]
        for option, content in (("--follow-ca", leader.ca), ("--follow-token-file", leader.token.encode())):
            if content:
                file = self._folder / option.strip("-")
                file.touch(0o600)
                file.write_bytes(content)
                arguments += [option, str(file)]
        self._server = KeptServer(self._folder, arguments)

    def serving(self, policy: str, again: bool) -> Answer[Serving]:
        """Give the server, once it has a policy; started again, if it has died."""
        return Answer.of(lambda: self._serving(policy, again=again))

    def _serving(self, policy: str, *, again: bool) -> Serving:
        if again:
            self._server.ensure()
        until = monotonic() + _ARRIVES_WITHIN
        while not self._has(PolicyReference.parse(policy)):
            if monotonic() > until:
                raise NotFoundError(
                    f"the server of the node {socket.gethostname()}, which follows {self._leader.follow}, has no "
                    f"{policy} after {_ARRIVES_WITHIN:g} s; nodes get no Python code and no bundled policies "
                    f"(docs/ray.md). It says: {self._said()}"
                )
            sleep(_LOOKED)
        return Serving(self._server.socket, self._server.ledger)

    def _has(self, policy: PolicyReference) -> bool:
        try:
            known = self._server.policies.show(policy.name)
        except NotFoundError:
            return False
        except UnavailableError:
            self._server.ensure()
            return False
        served = [each.version for each in known.versions if not each.error]
        return bool(served) if policy.version is None else policy.version in served

    def _said(self) -> str:
        log = (self._folder / "server.log").read_text(encoding="utf-8", errors="replace")
        return log.strip()[-1000:] or "it said nothing"

    def close(self) -> None:
        """End the server."""
        self._server.close()
        shutil.rmtree(self._folder.parent, ignore_errors=True)

"""A node of a Ray cluster as the machine of a job."""

import os
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import ray

from policybridge_core.errors import PolicyBridgeError, PreconditionError, UnavailableError
from policybridge_train.farms.contract import Recipe, Serving, Shared
from policybridge_train.farms.local import Tools
from policybridge_train.processes.process import Running

if TYPE_CHECKING:
    from ray.actor import ActorHandle

T = TypeVar("T")


class MachineError(PreconditionError):
    """A node lacks what jobs need, so that every job would fail there."""


class NodeMachine:
    """See `Machine`.

    Args:
        name: the node's name, for messages.
        folder: the folder of files that all compilers of the node share.
        server: the actor that runs the node's policy server; ``None`` if no job asks a server.

    """

    def __init__(self, name: str, folder: Path, server: "ActorHandle[Any] | None") -> None:
        self.running = Running()
        self._name = name
        self._folder = folder
        self._server = server
        self._tools = Tools()
        self._lock = Lock()
        self._known: dict[str, Serving] = {}

    def tool(self, recipe: Recipe[T]) -> T:
        """Give the tool of a recipe.

        Raises:
            MachineError: the tool cannot be made on this node.

        """
        try:
            return self._tools.of(recipe, self)
        except PolicyBridgeError as error:
            raise MachineError(f"the node {self._name}: {error}") from error

    def file(self, name: str, digest: str, content: Shared[bytes]) -> Path:
        """Give a file. It is written under another name and renamed: other processes of the node may read it now."""
        file = self._folder / digest / os.path.basename(name)  # noqa: PTH119 - a name may be any bytes
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=file.parent, delete=False) as partial:
                partial.write(content.at(self))
            Path(partial.name).replace(file)
        return file

    def serving(self, address: str, policy: str, *, again: bool = False) -> Serving:
        """Give the node's server, once it has the policy.

        Raises:
            PreconditionError: the farm was not told that jobs ask a server.
            UnavailableError: the server does not start, or does not get the policy.

        """
        if self._server is None:
            raise PreconditionError(f"no server of this farm has the policies of {address}: Farm.lead was not called")
        with self._lock:
            known = self._known.get(policy)
        if known is not None and not again:
            return known
        found = self._asked(self._server, policy, again=again)
        with self._lock:
            self._known[policy] = found
        return found

    @staticmethod
    def _asked(server: "ActorHandle[Any]", policy: str, *, again: bool) -> Serving:
        try:
            answer: Any = ray.get(server.serving.remote(policy, again))
        except ray.exceptions.RayActorError as error:
            raise UnavailableError(f"the policy server of this node was lost: {error}") from error
        found: Serving = answer.given()
        return found

"""The other processes of a server, as changes of the repository see them."""

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from policybridge_server.repository import StoredPolicy, StoredVersion


class Peers(Protocol):
    """Lets all processes of a server serve the same. For the loop thread.

    Attributes:
        workers: how many processes serve, if all are well.

    """

    workers: int

    @property
    def processes(self) -> list[int]:
        """Give the numbers of the processes that this one counts for: its own, and that of a parent."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Give what is held while this process changes the repository: no other one does meanwhile."""

    async def prepare(self, version: StoredVersion, *, published: bool) -> None:
        """Let all others load a version, without letting sessions get it before `take`.

        Args:
            version: lies in its folder.
            published: whether it is new, and must take what the clients of the one before send.

        Raises:
            PolicyBridgeError: one of them cannot; none of them keeps it then.

        """

    async def take(self, policy: StoredPolicy) -> None:
        """Let all others serve the policy as it is here now; return when they do."""

    def when_left(self, folder: Path, call: Callable[[], None]) -> None:
        """Call ``call`` when no other process has the version in this folder loaded."""

    async def gather(self, what: str) -> list[Any]:
        """Ask all others for ``what``; those that are gone, or stand still, do not answer.

        Raises:
            UnavailableError: the process that reaches the others stands still.

        """

    async def snapshots(self, own: Any) -> list[Any]:
        """Give the numbers of all others, also of those that have ended; they get this process's ``own``.

        Raises:
            UnavailableError: the process that reaches the others stands still.

        """


class Alone:
    """There is no other process; implements `Peers`."""

    workers = 1

    @property
    def processes(self) -> list[int]:
        """Give the number of this process."""
        return [os.getpid()]

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Hold nothing."""
        return nullcontext()

    async def prepare(self, version: StoredVersion, *, published: bool) -> None:
        """Do nothing."""

    async def take(self, policy: StoredPolicy) -> None:
        """Do nothing."""

    def when_left(self, folder: Path, call: Callable[[], None]) -> None:  # noqa: ARG002
        """Call at once."""
        call()

    async def gather(self, what: str) -> list[Any]:  # noqa: ARG002
        """Give nothing."""
        return []

    async def snapshots(self, own: Any) -> list[Any]:  # noqa: ARG002
        """Give nothing."""
        return []

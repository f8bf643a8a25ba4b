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
        """Return the lock for changes of the repository, which excludes the other processes."""

    async def prepare(self, version: StoredVersion, *, published: bool) -> None:
        """Let all others load a version, without letting sessions get it before `take`.

        Args:
            version: the version, with its files in their folder.
            published: whether it is new, and must accept the signatures of its predecessor's clients.

        Raises:
            PolicyBridgeError: one of them cannot; then none keeps it.

        """

    async def take(self, policy: StoredPolicy) -> None:
        """Let all others serve the policy's present state here; return when they do."""

    def when_left(self, folder: Path, call: Callable[[], None]) -> None:
        """Call ``call`` when no other process has the version in this folder loaded."""

    async def gather(self, what: str) -> list[Any]:
        """Send all others the question ``what``; those that have ended, or hang, do not answer.

        Raises:
            UnavailableError: the process that reaches the others hangs.

        """

    async def snapshots(self, own: Any) -> list[Any]:
        """Return the numbers of all others, also of ended ones; they get this process's ``own``.

        Raises:
            UnavailableError: the process that reaches the others hangs.

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

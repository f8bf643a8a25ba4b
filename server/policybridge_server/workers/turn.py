"""The turns of processes that change the repository."""

import asyncio


class Turn:
    """A lock held by one process at a time, in the order of the requests. For the loop thread."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._owner: object = None

    async def take(self, owner: object) -> None:
        """Wait for the turn."""
        await self._lock.acquire()
        self._owner = owner

    def end(self, owner: object) -> bool:
        """End the turn; return whether it was that of ``owner``."""
        if self._owner is not owner:
            return False
        self._owner = None
        self._lock.release()
        return True

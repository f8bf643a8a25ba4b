"""The sessions, calls or compiles that run on a transport, which a server that shuts down waits for."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class Running(Generic[_Item]):
    """A set that can be waited for. For the loop thread."""

    def __init__(self) -> None:
        self._items: set[_Item] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[_Item]:
        return iter(list(self._items))

    def add(self, item: _Item) -> None:
        """Count ``item``."""
        self._items.add(item)

    def discard(self, item: _Item) -> None:
        """Count ``item`` no longer; an unknown one is ignored."""
        self._items.discard(item)
        self._changed.set()

    def __contains__(self, item: _Item) -> bool:
        return item in self._items

    async def drain(self, grace: float, end: Callable[[_Item], object], last: float = 0.0) -> None:
        """Wait until nothing runs, at most ``grace`` seconds; then ``end`` the rest and wait ``last`` seconds."""
        await self._empty(grace)
        for item in self:
            end(item)
        await self._empty(last)

    async def _empty(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._items:
                    self._changed.clear()
                    await self._changed.wait()

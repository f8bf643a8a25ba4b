"""Large requests of ML-Compiler-Bridge's clients: decoded in a thread, and no faster than their memory comes back."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary, finalize

import numpy as np
import numpy.typing as npt

from policybridge_serdes.values import Row

LARGE: Final = 1 << 16
"""Bytes. A request of this size or larger is decoded in a worker thread, so that it does not hold up the loop."""

_ROOM: Final = 16 << 20
"""Bytes of observations, made of large requests, with which the next such request is decoded."""

_LONGEST: Final = 5.0
"""Seconds that a request waits for room: a ledger that cannot be written keeps observations, and delays no decision."""


class Decoded(Protocol):
    """A decoded request."""

    @property
    def row(self) -> Row:
        """Its observation."""


_Decoded = TypeVar("_Decoded", bound=Decoded)


class Decoding:
    """Decodes large requests: one at a time, and one of each client in turn. For the loop thread.

    A request takes up to forty times its bytes while it is decoded, and its observation eight times: a byte of packed
    numbers becomes eight. The model and the ledger hold the observation after the call. So the next request is decoded
    when they have freed most of those before.

    Args:
        room: bytes of observations with which the next request is decoded.
        longest: seconds that a request waits for room.

    """

    def __init__(self, room: int = _ROOM, longest: float = _LONGEST) -> None:
        self._most = room
        self._longest = longest
        self._one = asyncio.Lock()
        self._of_peers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._freed = asyncio.Event()
        self._held = 0

    async def decode(self, decode: Callable[[bytes], _Decoded], data: bytes, peer: str) -> _Decoded:
        """Return what ``decode`` makes of a request of ``peer``, which it is called with in a thread."""
        # A lock serves in the order of coming, so that a client with one request waits for one of each other client.
        async with self._of_peers.setdefault(peer, asyncio.Lock()), self._one:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._longest):
                    await self._room()
            decoded = await asyncio.to_thread(decode, data)
            self._watch(decoded.row)
            return decoded

    async def _room(self) -> None:
        while self._held > self._most:
            self._freed.clear()
            await self._freed.wait()

    def _watch(self, row: Row) -> None:
        loop = asyncio.get_running_loop()
        for array in _arrays(row):
            self._held += array.nbytes
            # The last reference may be the ledger's thread's.
            finalize(array, _post, loop, partial(self._forget, array.nbytes)).atexit = False

    def _forget(self, size: int) -> None:
        self._held -= size
        self._freed.set()


def _arrays(row: Row) -> Iterator[npt.NDArray[Any]]:
    """Give the arrays of an observation: values of a varying shape lie in arrays of their own."""
    if isinstance(row, bytes):
        return
    yield row
    for name in row.dtype.names or ():
        if row.dtype[name].hasobject and isinstance(row[name][0], np.ndarray):
            yield row[name][0]


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # The loop is closed.
        loop.call_soon_threadsafe(call)

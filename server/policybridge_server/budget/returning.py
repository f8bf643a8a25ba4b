"""Returns freed memory to the system."""

import asyncio
import ctypes
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

_EVERY: Final = 5.0
"""Seconds between two looks at the memory of the process."""

_GROWN: Final = 4 << 20
"""Bytes. Free memory is returned if it, or the process, has grown by more."""


async def return_memory() -> None:
    """Return freed memory to the system, for ever: also that of threads, which no connection's budget counts."""
    least = _sizes()
    while True:
        await asyncio.sleep(_EVERY)
        sizes = _sizes()
        # Memory that is freed after a look changes only the second size; freed and used again, only the first.
        if any(now - before > _GROWN for now, before in zip(sizes, least, strict=True)):
            await asyncio.to_thread(trim)
            least = sizes = _sizes()
        least = tuple(map(min, least, sizes))


def _sizes() -> tuple[int, ...]:
    """Give the bytes of the process, and those that the C library keeps free."""
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return (resident, 0)
    library.mallinfo2.restype = _MallocInfo
    return (resident, library.mallinfo2().fordblks)


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2`` of the GNU C library."""

    _fields_ = (("others", ctypes.c_size_t * 8), ("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t))


def trim() -> None:
    """Return freed memory now."""
    # The C library keeps freed memory, and returns only the end of its heap by itself.
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)

"""A cache of bounded size that a flood of new keys does not empty."""

from collections.abc import Iterator
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Entry(Generic[_Value]):
    """A cached value.

    Attributes:
        value: the cached value.
        used: whether the value was used since it was last considered for eviction. A holder of the entry that uses
            the value without `BoundedCache.get` sets it.

    """

    __slots__ = ("used", "value")

    def __init__(self, value: _Value) -> None:
        self.value = value
        self.used = False


class BoundedCache(Generic[_Key, _Value]):
    """Holds at most ``size`` values.

    The oldest value is evicted first, unless it was used since it became the oldest the last time: then it gets a
    second chance (the CLOCK algorithm). A client that always sends new keys evicts its own, not those in use.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: dict[_Key, Entry[_Value]] = {}

    def get(self, key: _Key) -> _Value | None:
        """Give the value of ``key``; ``None`` if there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used = True
        return entry.value

    def put(self, key: _Key, value: _Value) -> Entry[_Value]:
        """Cache ``value``; this may evict another one."""
        self._entries.pop(key, None)
        while len(self._entries) >= self._size:
            oldest = next(iter(self._entries))
            entry = self._entries.pop(oldest)
            if entry.used:
                entry.used = False
                self._entries[oldest] = entry
        entry = self._entries[key] = Entry(value)
        return entry

    def drop_unused(self) -> bool:
        """Drop the values unused since the last call; return whether any is left."""
        self._entries = {key: entry for key, entry in self._entries.items() if entry.used}
        for entry in self._entries.values():
            entry.used = False
        return bool(self._entries)

    def entries(self) -> Iterator[Entry[_Value]]:
        """Give all entries, the oldest first."""
        return iter(self._entries.values())

    def __contains__(self, key: _Key) -> bool:
        return key in self._entries

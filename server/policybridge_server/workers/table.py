"""The workers' state without messages: a table in shared memory, in which each writes its own row."""

import mmap
import os
import time
import zlib
from typing import Final

import numpy as np

_CLIENTS: Final = 4096
"""Clients are counted by a hash of their names; two with the same hash share their limit."""

_CONNECTIONS, _SESSIONS, _BEATS, _FIRST = 0, 1, 2, 3
_COLUMNS: Final = _FIRST + 3 * _CLIENTS
"""Connections, sessions, beats; then by client: sessions, the second of the last opening, and the openings in it."""

_ABSENT: Final = 1 << 30

BEAT_SECONDS: Final = 1.0
"""Seconds within which a running loop beats once."""


def make_table(workers: int) -> int:
    """Return the descriptor of a new table, in which all workers are absent."""
    descriptor = os.memfd_create("policybridge-workers")
    os.ftruncate(descriptor, workers * _COLUMNS * 4)
    for index in range(workers):
        Row(descriptor, workers, index).leave()
    return descriptor


class Row:
    """One worker's row, and a view of the others'. For one thread.

    Numbers of the others may be out of date by one connection or session: they are read without a lock.

    Args:
        descriptor: of the table; it stays open.
        workers: how many there are.
        index: which one this is.

    """

    def __init__(self, descriptor: int, workers: int, index: int) -> None:
        memory = mmap.mmap(descriptor, workers * _COLUMNS * 4)
        self._all = np.frombuffer(memory, np.int32).reshape(workers, _COLUMNS)
        self._index = index
        self._own = self._all[index]
        self._others = np.delete(np.arange(workers), index)

    def leave(self) -> None:
        """Be absent: the worker takes no connection, and has no session."""
        self._own[:] = 0
        self._own[_CONNECTIONS] = _ABSENT

    def enter(self) -> None:
        """Take connections from now on."""
        self._own[:] = 0

    @property
    def beats(self) -> int:
        """The number that changes as long as the worker's loop runs."""
        return int(self._own[_BEATS])

    def beat(self) -> None:
        """Show that the worker's loop runs."""
        self._own[_BEATS] = (self._own[_BEATS] + 1) % _ABSENT

    def connection(self, change: int) -> None:
        """Count an opened (1) or closed (-1) connection."""
        self._own[_CONNECTIONS] += change

    def takes(self) -> bool:
        """Whether no other worker has less to do, so that the next connection is this worker's.

        Connections and sessions count alike: one connection of gRPC may carry many sessions, and a new one none yet.
        """
        loads = self._all[:, _CONNECTIONS] + self._all[:, _SESSIONS]
        return bool(loads[self._index] <= loads.min())

    def session(self, client: str, change: int) -> None:
        """Count a session that was opened (1) or has ended (-1)."""
        self._own[_SESSIONS] += change
        self._own[self._column(client)] += change

    def opened(self, client: str) -> None:
        """Count a session that ``client`` asks for in this second."""
        column, second = self._column(client) + _CLIENTS, int(time.monotonic())
        if self._own[column] != second:
            self._own[column], self._own[column + _CLIENTS] = second, 0
        self._own[column + _CLIENTS] += 1

    def sessions(self) -> int:
        """Give the number of sessions that the others have."""
        return int(self._all[self._others, _SESSIONS].sum())

    def of_client(self, client: str) -> int:
        """Give the number of sessions that the others have of ``client``."""
        return int(self._all[self._others, self._column(client)].sum())

    def opened_by(self, client: str) -> int:
        """Give the number of sessions that ``client`` has asked the others for in this second."""
        column, second = self._column(client) + _CLIENTS, int(time.monotonic())
        now = self._all[self._others, column] == second
        return int(self._all[self._others, column + _CLIENTS][now].sum())

    @staticmethod
    def _column(client: str) -> int:
        return _FIRST + zlib.crc32(client.encode(errors="surrogatepass")) % _CLIENTS

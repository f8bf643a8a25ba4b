"""The writer: a thread that takes what the recorder hands over, and writes it many records at a time."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from policybridge_core.errors import PolicyBridgeError, UnavailableError
from policybridge_server.engine.recorder import Reported
from policybridge_server.ledger.contract import Store
from policybridge_server.ledger.records import Record, Segment

_LOG = logging.getLogger(__name__)

_PERIOD: Final = 0.2
"""Seconds between two transactions, unless somebody waits for one."""

_COLLECT: Final = 5
"""Periods after which the live sessions' decisions are collected, however few."""

_PRUNE: Final = 25
"""Periods after which the bounds are looked at."""

_ROOM: Final = 256 << 20
"""Bytes of observations that may wait for a store that is slow, or that cannot be written."""

_Item = tuple[Record, Reported | None]


class Writer:
    """Writes records in their order.

    ``put``, ``put_urgent`` and ``has_room`` are for the loop thread and only append; it is never woken or waited for
    but by `put_urgent`: two threads that hand the interpreter to each other would cost decisions more than they take.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: deque[_Item] = deque()
        self._wake = threading.Event()
        self._stopping = False
        # Each is changed by one thread alone.
        self._taken = 0
        self._written = 0
        self._thread: threading.Thread | None = None
        self._post: Callable[..., object] | None = None

    def start(self, post: Callable[..., object], collect: Callable[[], None]) -> None:
        """Begin; ``post`` hands a call to the loop thread, ``collect`` is called there and puts what is left."""
        self._post = post
        self._collect = collect
        self._thread = threading.Thread(target=self._run, name="ledger")
        self._thread.start()

    def put(self, record: Record) -> None:
        """Have ``record`` written soon."""
        if isinstance(record, Segment):
            self._taken += record.size
        self._queue.append((record, None))

    def put_urgent(self, record: Record, reported: Reported) -> None:
        """Have ``record`` written now; ``reported`` is told on the loop thread."""
        self._queue.append((record, reported))
        self._wake.set()

    def has_room(self, size: int) -> bool:
        """Whether ``size`` more bytes may wait."""
        return self._taken - self._written + size <= _ROOM

    def close(self) -> None:
        """Write all that was put, then close the store."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self._write(self._take([]))
        self._store.close()

    def _run(self) -> None:
        items: list[_Item] = []
        period = 0
        while not self._stopping:
            if not self._wake.wait(_PERIOD):
                period += 1
                self._do_at(period)
            self._wake.clear()
            # What could not be written is tried again with what came meanwhile.
            items = self._write(self._take(items))
        self._write(items)

    def _take(self, items: list[_Item]) -> list[_Item]:
        return items + [self._queue.popleft() for _ in range(len(self._queue))]

    def _do_at(self, period: int) -> None:
        if period % _COLLECT == 0:
            self._tell(self._collect)
        if period % _PRUNE == 0:
            self._guarded(self._store.prune)

    def _write(self, items: list[_Item]) -> list[_Item]:
        """Write ``items``; give those that are left."""
        if not items:
            return []
        try:
            refused = self._store.write([record for record, _ in items])
        except Exception as error:
            # The thread must live on: a disk that was full may have room again.
            _LOG.error("the ledger cannot be written: %s", error)
            return self._put_off(items, UnavailableError(f"the ledger cannot be written: {error}"))
        self._written += sum(record.size for record, _ in items if isinstance(record, Segment))
        for position, (_, reported) in enumerate(items):
            if reported is not None:
                self._tell(reported, refused.get(position))
        return []

    def _put_off(self, items: list[_Item], error: PolicyBridgeError) -> list[_Item]:
        for _, reported in items:
            if reported is not None:
                self._tell(reported, error)
        return [(record, None) for record, _ in items]

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        # When the loop is closed nobody waits any more.
        with suppress(RuntimeError):
            if self._post is not None:
                self._post(call, *arguments)

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except PolicyBridgeError as error:
            _LOG.warning("the ledger's bounds: %s", error)

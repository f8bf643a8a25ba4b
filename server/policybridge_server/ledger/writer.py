"""The writer: a thread that writes the records of the recorder, many in one transaction."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from policybridge_core.errors import PolicyBridgeError, UnavailableError
from policybridge_server.engine.recorder import Acknowledge
from policybridge_server.ledger.contract import Store
from policybridge_server.ledger.records import Record, Segment

_LOG = logging.getLogger(__name__)

_PERIOD: Final = 0.2
"""Seconds between two transactions, unless a client waits for an acknowledgement."""

_COLLECT: Final = 5
"""Periods after which the decisions of the open sessions are collected, even if they are few."""

_PRUNE: Final = 25
"""Periods after which the store is pruned."""

_ROOM: Final = 256 << 20
"""Bytes of observations that may wait for a store that is slow or cannot be written."""

_Item = tuple[Record, Acknowledge | None]


class Writer:
    """Writes records in their order.

    ``put``, ``put_urgent`` and ``has_room`` are for the loop thread, which never waits for the writer. Only
    ``put_urgent`` wakes the writer's thread, because handing the interpreter from thread to thread slows decisions.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: deque[_Item] = deque()
        self._wake = threading.Event()
        self._stopping = False
        # Bytes. The loop thread alone changes the first one, the writer's thread alone the second.
        self._put_bytes = 0
        self._written_bytes = 0
        self._thread: threading.Thread | None = None
        self._post: Callable[..., object] | None = None

    def start(self, post: Callable[..., object], collect: Callable[[], None]) -> None:
        """Begin; ``post`` makes a call on the loop thread. ``collect`` is called there, to put the decisions so far."""
        self._post = post
        self._collect = collect
        self._thread = threading.Thread(target=self._run, name="ledger")
        self._thread.start()

    def put(self, record: Record) -> None:
        """Write ``record`` within about a period."""
        if isinstance(record, Segment):
            self._put_bytes += record.size
        self._queue.append((record, None))

    def put_urgent(self, record: Record, acknowledge: Acknowledge) -> None:
        """Write ``record`` at once, then call ``acknowledge`` on the loop thread."""
        self._queue.append((record, acknowledge))
        self._wake.set()

    def has_room(self, size: int) -> bool:
        """Whether ``size`` more bytes may wait."""
        return self._put_bytes - self._written_bytes + size <= _ROOM

    def close(self) -> None:
        """Write all records, then close the store."""
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
            # Records that could not be written are tried again together with the newer ones.
            items = self._write(self._take(items))
        self._write(items)

    def _take(self, items: list[_Item]) -> list[_Item]:
        return items + [self._queue.popleft() for _ in range(len(self._queue))]

    def _do_at(self, period: int) -> None:
        if period % _COLLECT == 0:
            self._post_to_loop(self._collect)
        if period % _PRUNE == 0:
            self._prune()

    def _write(self, items: list[_Item]) -> list[_Item]:
        """Write ``items``; give those that could not be written."""
        if not items:
            return []
        try:
            refused = self._store.write([record for record, _ in items])
        except Exception as error:
            # The thread must go on: a disk that was full may have room again.
            _LOG.error("the ledger cannot be written: %s", error)
            self._acknowledge(
                items, dict.fromkeys(range(len(items)), UnavailableError(f"the ledger cannot be written: {error}"))
            )
            return [(record, None) for record, _ in items]
        self._written_bytes += sum(record.size for record, _ in items if isinstance(record, Segment))
        self._acknowledge(items, refused)
        return []

    def _acknowledge(self, items: list[_Item], refused: Mapping[int, PolicyBridgeError]) -> None:
        for position, (_, acknowledge) in enumerate(items):
            if acknowledge is not None:
                self._post_to_loop(acknowledge, refused.get(position))

    def _post_to_loop(self, call: Callable[..., None], *arguments: object) -> None:
        # After the loop is closed, no client waits any more.
        with suppress(RuntimeError):
            if self._post is not None:
                self._post(call, *arguments)

    def _prune(self) -> None:
        try:
            self._store.prune()
        except PolicyBridgeError as error:
            _LOG.warning("the ledger cannot be pruned: %s", error)

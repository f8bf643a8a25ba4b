"""The writer: a thread that writes the records of the recorder, many in one transaction."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from policybridge_core.errors import PolicyBridgeError, UnavailableError, UnknownError, UnsupportedError
from policybridge_server.engine.recorder import Acknowledge
from policybridge_server.ledger.contract import Resuming, Store
from policybridge_server.ledger.records import Record, Resumed, Segment

_LOG = logging.getLogger(__name__)

_PERIOD: Final = 0.2
"""Seconds between two transactions, unless a client waits for an acknowledgement."""

_COLLECT: Final = 1.0
"""Seconds after which the decisions of the open sessions are collected, even if they are few."""

_PRUNE: Final = 5.0
"""Seconds after which the store is pruned."""

_PRUNE_BYTES: Final = 1 << 20
"""Written bytes after which the store is pruned, even before `_PRUNE` seconds have passed."""

_STEP: Final = 4 << 20
"""Approximate limit of a transaction in bytes: its acknowledgements wait for all of it."""

_ROOM: Final = 256 << 20
"""Bytes of memory that records may take while they wait for a store that is slow or cannot be written."""

_LATER: Final = (
    "the ledger cannot be written now; the report waits in the server's memory, and is written later if the ledger "
    "can be written again before the server ends"
)

_Item = tuple[Record, Acknowledge | None, int]
"""A record, whom to tell, and the record's size, which takes long to tell."""


class _Wake:
    """Wakes one thread; `threading.Event` takes ten times as long, because it wakes any number."""

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def set(self) -> None:
        """End the wait of the thread, or its next one."""
        # It raises this where the thread is to wake up already.
        with suppress(RuntimeError):
            self._asleep.release()

    def wait(self, seconds: float) -> None:
        """Wait until the next `set`, at most for this time."""
        self._asleep.acquire(timeout=seconds)


def _tell(told: Sequence[tuple[Acknowledge, PolicyBridgeError | None]]) -> None:
    """Make acknowledgements, on the loop thread; an error of one costs no other."""
    for acknowledge, error in told:
        try:
            acknowledge(error)
        except Exception:
            _LOG.exception("an acknowledgement of the ledger cannot be passed on")


class Writer:
    """Writes records in their order, the oldest first.

    ``put``, ``put_urgent`` and ``has_room`` are for the loop thread, which never waits for the writer. Only
    ``put_urgent`` wakes the writer's thread, because handing the interpreter from thread to thread slows decisions.

    The size of a transaction is limited. If a transaction cannot be written, for example on a nearly full disk, the
    next one is an eighth as large, so that it may fit.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: deque[_Item] = deque()
        self._waiting: deque[_Item] = deque()
        self._wake = _Wake()
        self._by_turns = self._urgent = False
        self._stopping = False
        # In bytes. Only the loop thread changes `_put_bytes`; only the writer's thread changes the other two.
        self._put_bytes = 0
        self._written_bytes = 0
        self._pruned_bytes = 0
        self._step = _STEP
        self._failure = ""
        self._behind_since: float | None = None
        self._pruning = False
        self._thread: threading.Thread | None = None
        self._post: Callable[..., object] | None = None

    def start(self, post: Callable[..., object], collect: Callable[[], None], *, by_turns: bool = False) -> None:
        """Start the thread.

        Args:
            post: makes a call on the loop thread.
            collect: runs there and puts the decisions.
            by_turns: whether `end_turn` is called after each turn of the loop.

        """
        self._post = post
        self._by_turns = by_turns
        self._collect = collect
        self._thread = threading.Thread(target=self._run, name="ledger")
        self._thread.start()

    def put(self, record: Record) -> None:
        """Write ``record`` within about a period."""
        size = record.size
        self._put_bytes += size
        self._queue.append((record, None, size))

    def put_urgent(self, record: Record, acknowledge: Acknowledge) -> None:
        """Write ``record`` at once, or when the turn ends, then call ``acknowledge`` on the loop thread."""
        size = record.size
        self._put_bytes += size
        self._queue.append((record, acknowledge, size))
        if self._by_turns:
            self._urgent = True
        else:
            self._wake.set()

    def end_turn(self) -> None:
        """Wake the thread for the urgent records of this turn: sooner, it would only wait for the interpreter."""
        if self._urgent:
            self._urgent = False
            self._wake.set()

    def has_room(self, size: int) -> bool:
        """Whether ``size`` more bytes may wait."""
        return self._put_bytes - self._written_bytes + size <= _ROOM

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the records that are not written."""
        return self._put_bytes - self._written_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes of the records that were written."""
        return self._written_bytes

    @property
    def failing(self) -> bool:
        """Whether the store cannot be written now."""
        return bool(self._failure)

    @property
    def lag(self) -> float:
        """Seconds since all records were last written; 0: none waits."""
        since = self._behind_since
        return 0.0 if since is None else monotonic() - since

    def close(self) -> None:
        """Write all records that can be written, then close the store."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self._take()
        # The smallest transaction has one record: if that fails, no other can succeed.
        while self._waiting and (self._write() or self._step > 1):
            pass
        self._tell_dropped()
        self._store.close()

    def _run(self) -> None:
        # By the clock, not by the number of waits: reports may cut every wait short.
        collect_at, prune_at = monotonic() + _COLLECT, monotonic()
        while not self._stopping:
            if self._failure or not (self._waiting or self._pruning):
                self._wake.wait(_PERIOD)
            self._take()
            self._write()
            if monotonic() >= collect_at:
                self._post_to_loop(self._collect)
                collect_at = monotonic() + _COLLECT
            if self._pruning or monotonic() >= prune_at or self._written_bytes - self._pruned_bytes >= _PRUNE_BYTES:
                self._prune()
                prune_at = monotonic() + _PRUNE

    def _take(self) -> None:
        self._waiting.extend(self._queue.popleft() for _ in range(len(self._queue)))
        if self._waiting and self._behind_since is None:
            self._behind_since = monotonic()

    def _write(self) -> bool:
        """Write the oldest waiting records, at most one transaction; return whether that worked."""
        items = self._oldest()
        if items and isinstance(items[0][0], Resumed):
            return self._resume(self._waiting.popleft())
        try:
            refused = self._store.write([record for record, *_ in items]) if items else {}
        except Exception as error:
            # The thread must go on: a disk that was full may have room again.
            self._fail(error, sum(size for *_, size in items))
            return False
        for _ in items:
            self._waiting.popleft()
        self._written_bytes += sum(size for *_, size in items)
        if not self._waiting:
            self._behind_since = None
        self._acknowledge(items, refused)
        self._step = min(2 * self._step, _STEP)
        if self._failure and not self._waiting:
            _LOG.warning("the ledger can be written again; all waiting records are written")
            self._failure = ""
        return True

    def _oldest(self) -> list[_Item]:
        items, size = list[_Item](), 0
        for item in self._waiting:
            size += item[2]
            # A session that goes on is looked up between two transactions.
            if items and (size > self._step or isinstance(item[0], Resumed)):
                break
            items.append(item)
            if isinstance(item[0], Resumed):
                break
        return items

    def _resume(self, item: _Item) -> bool:
        """Let a session go on; if it may not, its client sends its record to the next server, or no more."""
        record, acknowledge, size = item
        failed: PolicyBridgeError | None = None
        try:
            if acknowledge is None:
                raise UnavailableError(_LATER)  # its client has been told so, and does not wait
            if not (isinstance(self._store, Resuming) and isinstance(record, Resumed)):
                raise UnsupportedError("this kind of ledger cannot take the record of an earlier session")
            record.held = self._store.resume(record)
        except Exception as error:
            if not isinstance(error, PolicyBridgeError):
                _LOG.exception("a session cannot go on in the ledger")
            failed = error if isinstance(error, PolicyBridgeError) else UnknownError(f"the ledger failed: {error!r}")
        self._written_bytes += size
        if not self._waiting:
            self._behind_since = None
        self._acknowledge([item], {}, failed)
        return True

    def _fail(self, error: Exception, size: int) -> None:
        self._step = max(1, min(self._step, size) // 8)
        if str(error) != self._failure:
            self._failure = str(error) or repr(error)
            _LOG.error("the ledger cannot be written; up to %d MiB of records wait in memory: %s", _ROOM >> 20, error)
        # Refuse all waiting records, also those of later transactions: clients must not wait for a disk.
        # They are not dropped: a transaction that failed at its end may have been written.
        self._acknowledge(list(self._waiting), {}, UnavailableError(_LATER))
        self._waiting = deque((record, None, size) for record, _, size in self._waiting)

    def _acknowledge(
        self, items: list[_Item], refused: Mapping[int, PolicyBridgeError], failed: PolicyBridgeError | None = None
    ) -> None:
        told = [
            (acknowledge, failed or refused.get(position))
            for position, (_, acknowledge, _) in enumerate(items)
            if acknowledge is not None
        ]
        if told:
            # Together: the loop's thread wakes at the first call, and each further one would wait for the interpreter.
            self._post_to_loop(_tell, told)

    def _post_to_loop(self, call: Callable[..., None], *arguments: object) -> None:
        # After the loop is closed, no client waits any more.
        with suppress(RuntimeError):
            if self._post is not None:
                self._post(call, *arguments)

    def _prune(self) -> None:
        self._pruned_bytes = self._written_bytes
        try:
            self._pruning = bool(self._store.prune())
        except PolicyBridgeError as error:
            self._pruning = False
            _LOG.warning("the ledger cannot be pruned: %s", error)

    def _tell_dropped(self) -> None:
        segments = [record for record, *_ in self._waiting if isinstance(record, Segment)]
        if self._waiting:
            _LOG.error(
                "the ledger could not be written to the end: %d decisions of %d sessions are missing; none of them was "
                "acknowledged",
                sum(len(segment.decisions) for segment in segments),
                len({segment.session_id for segment in segments}),
            )

"""The drain: a thread that sends a spool's batches to the database, the oldest first."""

import logging
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final

import msgspec

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.place import DatabaseUrl
from policybridge_server.ledger.postgres.sender import Sender
from policybridge_server.ledger.spool import Spool

_LOG = logging.getLogger(__name__)

_STEP: Final = 4 << 20
"""Bytes of one transaction, about."""

_PATIENCE: Final = 1.0
"""Seconds that an acknowledgement waits for the database, before the spool suffices."""

_AGAIN: Final = (0.1, 2.0)
"""Seconds between two tries to connect: at first, and in the end."""

_PRUNE: Final = 5.0
_ADOPT: Final = 30.0
"""Seconds between two looks for the spools of ended servers."""

_END: Final = 10.0
"""Seconds that the end of a server waits for the database."""

Refusals = Mapping[int, PolicyBridgeError]
"""Position in a batch → why that row cannot be acknowledged."""


class Drain:
    """Sends the records of a spool, and all later ones.

    Args:
        url: the database's URL.
        spool: the spool to drain; it is not closed here.
        bounds: the ledger's bounds.
        left: returns the spools of ended servers, to be drained too; called periodically.

    Attributes:
        away: whether acknowledgements do not wait for the database: it is away, or too slow.

    """

    def __init__(self, url: DatabaseUrl, spool: Spool, bounds: Bounds, left: Callable[["Drain"], None]) -> None:
        self._url = url
        self._spool = spool
        self._bounds = bounds
        self._left = left
        self._changed = threading.Condition()
        self._closing = False
        self._sent = 0 if spool.waiting_bytes else spool.last
        self._refused: dict[int, dict[int, PolicyBridgeError]] = {}
        self._sender: Sender | None = None
        self._pause = _AGAIN[0]
        self._prune_at = self._adopt_at = monotonic()
        self._told = ""
        self.away = False
        # A database that does not answer must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="ledger drain", daemon=True)

    def connect(self) -> None:
        """Try to connect; a failure is logged once, when it begins.

        Raises:
            PolicyBridgeError: the database is away, or it refuses.

        """
        if self._sender is None:
            self._sender = Sender(self._url, self._bounds, self._spool.writer)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Tell that there is something in the spool."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, number: int) -> Refusals | None:
        """Wait until a batch is in the database, and return its refusals; ``None``: it is only in the spool."""
        with self._changed:
            self._changed.wait_for(lambda: self._sent >= number or self.away, _PATIENCE)
            if self._sent < number:
                self._give_up()
                return None
            refused = self._refused.get(number, {})
            self._refused = {key: each for key, each in self._refused.items() if key > number}
            return refused

    def _give_up(self) -> None:
        """Let nothing wait for the database until it has caught up."""
        if not self.away:
            self.away = True
            self._told = f"the ledger {self._url} does not answer within {_PATIENCE:g} s"
            _LOG.warning("%s; records are acknowledged when they are in the spool %s", self._told, self._spool.file)

    def close(self) -> None:
        """Send as much as possible, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(_END)
        if self._spool.waiting_bytes:
            _LOG.warning(
                "the database of the ledger is away: %d bytes of records wait in %s until a server with this spool "
                "and this ledger is started",
                self._spool.waiting_bytes,
                self._spool.file,
            )

    def _run(self) -> None:
        while True:
            try:
                self.connect()
                if not self._turn():
                    break
            except Exception as error:
                # After any error, the rows wait in the spool, and decisions go on.
                self._lose(error)
                if self._closing:
                    break
                self._rest(self._pause)
                self._pause = min(2 * self._pause, _AGAIN[1])
        if self._sender is not None:
            self._sender.close()

    def _turn(self) -> bool:
        """Send some waiting rows; if there are none, rest or do other work. Return whether to go on."""
        if self.drain_some(self._spool):
            self._pause = _AGAIN[0]
            return True
        self._caught_up()
        if self._closing:
            return False
        if monotonic() >= self._prune_at and self._sender is not None:
            more = self._sender.prune()
            self._prune_at = monotonic() + (0 if more else _PRUNE)
        elif monotonic() >= self._adopt_at:
            self._left(self)
            self._adopt_at = monotonic() + _ADOPT
        else:
            self._rest(max(0.0, min(self._prune_at, self._adopt_at) - monotonic()))
        return True

    def drain_some(self, spool: Spool) -> bool:
        """Send the oldest batches of a spool; ``False`` if there is none."""
        batches = spool.oldest(_STEP)
        if not batches or self._sender is None:
            return False
        refused = self._sender.send(batches)
        last = batches[-1].number
        if spool is self._spool:
            with self._changed:
                self._refused |= refused
                self._sent = last
                self._changed.notify_all()
        # Only after the acknowledgement, which must not wait for the disk.
        spool.remove(last)
        return True

    def _caught_up(self) -> None:
        with self._changed:
            if self._spool.waiting_bytes:
                return
            self.away = False
        if self._told:
            _LOG.warning("the ledger %s can be written again; the spool is empty", self._url)
            self._told = ""

    def _lose(self, error: Exception) -> None:
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        with self._changed:
            self.away = True
            self._changed.notify_all()
        told = str(error) if isinstance(error, PolicyBridgeError) else repr(error)
        if not self._told:
            _LOG.error("%s; records wait in the spool %s until it can be written again", told, self._spool.file)
        elif not isinstance(error, PolicyBridgeError | msgspec.MsgspecError) and told != self._told:
            _LOG.error("the ledger's drain failed", exc_info=error)
        self._told = told

    def _rest(self, seconds: float) -> None:
        with self._changed:
            if not self._closing:
                self._changed.wait_for(
                    lambda: self._closing or (not self.away and self._spool.last > self._sent), seconds
                )

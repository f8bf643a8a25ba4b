"""A list of servers: ``socket:/run/policybridge.sock,grpcs:policies.example:50051``.

A new session goes to the first server that answers. It stays with that server: if the server goes away, the session has
no more advice, as with one server.
"""

import time
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Final, TypeVar

from policybridge_client.contract import ClientSession, Connection
from policybridge_client.outage import Outage
from policybridge_core.closing import Closing
from policybridge_core.errors import (
    DeadlineError,
    NotFoundError,
    PolicyBridgeError,
    UnavailableError,
    UnsupportedError,
)
from policybridge_serdes import Outcome, PolicyReference, SessionOptions, Signature

_REST: Final = 5.0
"""Seconds for which a server that did not answer is tried last."""

_OUT: Final = 60.0
"""Likewise for a server that was reached and did not answer in time; known to all processes of this user."""

_SOCKET: Final = "socket:"

_Given = TypeVar("_Given")

_AWAY: Final = (UnavailableError, DeadlineError)


def in_order(addresses: Sequence[str]) -> list[str]:
    """Give the addresses in the order of the attempts: first the sockets of this machine."""
    return sorted(addresses, key=lambda address: not _is_here(address))


def _is_here(address: str) -> bool:
    return address.startswith(_SOCKET) and Path(address.removeprefix(_SOCKET)).exists()


def _is_out(address: str, policy: PolicyReference) -> bool:
    try:
        Outage(address, policy, _OUT).check()
    except DeadlineError:
        return True
    return False


class SeveralServers(Closing):
    """A `Connection` to the first of several servers that answers.

    Args:
        addresses: the servers'.
        make: makes the connection to an address, when it is first tried.

    """

    def __init__(self, addresses: Sequence[str], make: Callable[[str], Connection]) -> None:
        self._addresses = list(addresses)
        self._make = make
        self._made: dict[str, Connection] = {}
        self._resting: dict[str, float] = {}

    def open(self, policy: PolicyReference, signature: Signature, options: SessionOptions) -> ClientSession:
        """Open a session with the first server that answers. Its answer counts, even if it is an error.

        Raises:
            UnavailableError: no server can be reached.
            DeadlineError: no server answers, and at least one could be reached.
            PolicyBridgeError: the first server that answers refuses.

        """
        resting = {address for address in self._addresses if _is_out(address, policy)}

        def open_at(address: str) -> ClientSession:
            try:
                return self._connection(address).open(policy, signature, options)
            except DeadlineError as error:
                Outage(address, policy, _OUT).remember(error)
                raise

        return self._first(open_at, resting)

    def check(self) -> None:
        """Check that a server can be reached.

        Raises:
            UnavailableError: no server can be reached.

        """
        self._first(lambda address: self._connection(address).check())

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:
        """Report the outcome to the server with the session in its ledger.

        Raises:
            NotFoundError: no ledger has the session.
            PolicyBridgeError: no server records the outcome.

        """
        refused: PolicyBridgeError | None = None
        for address in self._order():
            try:
                self._connection(address).report_outcome(session_id, outcome)
            except (*_AWAY, NotFoundError, UnsupportedError) as error:
                # Prefer the error of a server with a ledger.
                refused = error if refused is None or isinstance(error, NotFoundError) else refused
            else:
                return
        if refused is not None:
            raise refused

    def _first(self, ask: Callable[[str], _Given], resting: Container[str] = ()) -> _Given:
        errors: list[PolicyBridgeError] = []
        # Try a server that timed out last, so that not each compilation of a build waits for it.
        for address in sorted(self._order(), key=lambda address: address in resting):
            try:
                return ask(address)
            except _AWAY as error:
                self._resting[address] = time.monotonic() + _REST
                errors.append(error)
        is_late = any(isinstance(error, DeadlineError) for error in errors)
        text = f"none of {len(errors)} servers answers: {'; '.join(map(str, errors))}"
        raise DeadlineError(text) if is_late else UnavailableError(text)

    def _order(self) -> list[str]:
        now = time.monotonic()
        self._resting = {address: until for address, until in self._resting.items() if until > now}
        return sorted(in_order(self._addresses), key=lambda address: address in self._resting)

    def _connection(self, address: str) -> Connection:
        if address not in self._made:
            self._made[address] = self._make(address)
        return self._made[address]

    def close(self) -> None:
        """Close the connections and their sessions."""
        for connection in self._made.values():
            connection.close()

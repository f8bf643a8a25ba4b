"""The record of an earlier session, as a transport of messages gets it: in pieces of the socket's form."""

from collections.abc import Sequence

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_serdes.interactive import MAX_LINE, Event, InteractiveReader
from policybridge_server.budget import Budget, PeerBudget
from policybridge_server.transports.contract import Host
from policybridge_server.transports.socket_frames import Resume, parse_hello


class RecordStream:
    """Cuts a record into its first line and events.

    Args:
        host: has the limits.
        peer: the budget of the client.

    """

    def __init__(self, host: Host, peer: PeerBudget) -> None:
        self._line = bytearray()
        self._begun = False
        self._reader = InteractiveReader(host.config.limits)
        self._budget = Budget(2 * host.config.message_limit, peer.memory)

    def first(self, data: bytes) -> tuple[Resume | None, bytes]:
        """Take the next piece of the first line; give that line when it is whole, and the bytes after it.

        Raises:
            InvalidError: it is not the first line of a record.
            TooLargeError: it is too long.

        """
        self._line += data
        end = self._line.find(b"\n")
        if (end if end >= 0 else len(self._line)) > MAX_LINE:
            raise TooLargeError(f"the first line of the record is longer than {MAX_LINE} bytes")
        if end < 0:
            self._budget.hold(len(self._line))
            return None, b""
        line, rest = bytes(self._line[:end]), bytes(self._line[end + 1 :])
        self._line.clear()
        self._begun = True
        resume = parse_hello(line)
        if not isinstance(resume, Resume):
            raise InvalidError("the first line of a record names the session that it resumes; see proto/SOCKET.md")
        return resume, rest

    @property
    def begun(self) -> bool:
        """Whether the first line was whole."""
        return self._begun

    def events(self, data: bytes) -> Sequence[Event]:
        """Give the events that a piece completes.

        Raises:
            InvalidError: they are not those of a record.

        """
        events = self._reader.feed(data)
        self._budget.hold(self._reader.held)
        if any(isinstance(event, bytes) for event in events):
            raise InvalidError("the record of an earlier session asks for no decision")
        return events

    def close(self) -> None:
        """Give back what it holds."""
        self._budget.hold(0)
        self._budget.close()

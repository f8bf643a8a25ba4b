"""The interfaces between the parts of a connection: call, stream, connection."""

from collections.abc import Callable, Iterable
from typing import Protocol

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.budget import Budget, PeerBudget
from policybridge_server.grpc.http2.patience import Patience
from policybridge_server.grpc.http2.sending import Sending

Metadata = Iterable[tuple[str, str | bytes]]


class Call(Protocol):
    """Serves one stream. Called on the loop thread; must not block, and raises nothing but `PolicyBridgeError`."""

    def message(self, data: bytes) -> None:
        """Take one request message."""

    def half_closed(self) -> None:
        """Take the end of the requests."""

    def cancelled(self) -> None:
        """End the call without an answer: the client has cancelled it, or the stream has failed."""


class TimedStream(Protocol):
    """A stream, as seen by the objects that make it wait.

    Attributes:
        number: the HTTP/2 stream identifier.
        remote_closed: whether the peer sends nothing more.

    """

    number: int
    remote_closed: bool

    def proceed(self) -> None:
        """Continue the work left for this turn."""

    def give_back(self) -> None:
        """Let the peer send more, if it may."""

    def dismiss(self, error: PolicyBridgeError) -> None:
        """End the call because the rest of a message does not come."""


class StreamConnection(Protocol):
    """A connection, as seen by its streams.

    Attributes:
        peer: the client's address in gRPC's form.
        peer_budget: the budget of all connections of the client.
        sending: flow control of the data that we send.
        budget: the connection's memory budget.
        patience: the limit of frames that advance no call.
        write: sends frames.
        let_send: lets the peer send more bytes on a stream, unless other streams come first; returns whether it did.
        count: adds bytes of unanswered messages; a negative number takes those of answered messages away.
        relieve: lets the next stream with a large message continue, because the given stream has its whole message.
        told: called with the status of each call that ends with an error.
        is_tired: whether the connection has used its time in this turn of the loop.

    """

    peer: str
    peer_budget: PeerBudget
    sending: Sending
    budget: Budget
    patience: Patience
    write: Callable[[bytes], None]
    let_send: Callable[[TimedStream, int], bool]
    count: Callable[[int], None]
    relieve: Callable[[TimedStream], None]
    is_tired: Callable[[], bool]
    told: Callable[[int], None]

    def later(self, stream: TimedStream) -> None:
        """Let the stream `proceed` in a later turn."""

    def await_rest(self, stream: TimedStream, waiting: bool) -> None:
        """Wait for the rest of a message that the client has begun, for a limited time; or no longer."""

    def pump(self) -> None:
        """Send the waiting data, in this turn or in later ones."""

    def forget(self, stream: TimedStream) -> None:
        """Forget a stream that has ended."""

    def dismiss(self, error: PolicyBridgeError) -> None:
        """Close the connection because it has been silent too long."""

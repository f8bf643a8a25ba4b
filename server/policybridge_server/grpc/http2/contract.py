"""What the parts of a connection ask of each other: a call of its stream's, a stream of its connection."""

from collections.abc import Callable, Iterable
from typing import Protocol

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.grpc.http2.budget import Budget, Patience
from policybridge_server.grpc.http2.sending import Sending

Metadata = Iterable[tuple[str, str | bytes]]


class Call(Protocol):
    """Serves one stream. Called on the loop thread; must not block, and raises nothing but `PolicyBridgeError`."""

    def message(self, data: bytes) -> None:
        """Take one request message."""

    def half_closed(self) -> None:
        """Take the end of the requests."""

    def cancelled(self) -> None:
        """End the call without an answer: the client has given up, or the stream has failed."""


class TimedStream(Protocol):
    """A stream, as what makes it wait knows it.

    Attributes:
        number: HTTP/2's.
        remote_closed: whether the peer sends nothing more.

    """

    number: int
    remote_closed: bool

    def proceed(self) -> None:
        """Go on with what was left for this turn."""

    def give_back(self) -> None:
        """Let the peer send more, where it may."""

    def dismiss(self, error: PolicyBridgeError) -> None:
        """End the call because the rest of a message does not come."""


class StreamConnection(Protocol):
    """What a stream needs of its connection.

    Attributes:
        peer: the client's address, as gRPC writes it.
        sending: what the client takes.
        budget: what the connection may hold.
        patience: with frames that bring no call further.
        write: sends frames.
        let_send: lets the peer send more bytes on a stream, unless others come first; says whether.
        count: counts bytes of messages that calls have not answered yet; less than 0 for those that are.
        relieve: lets the next stream with a large message go on, because this one has sent its.
        told: is told the status of each call that ends with an error.
        is_tired: says whether the connection has worked long enough in this turn of the loop.

    """

    peer: str
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
        """Send what waits, in this turn or in later ones."""

    def forget(self, stream: TimedStream) -> None:
        """Forget a stream that has ended."""

    def dismiss(self, error: PolicyBridgeError) -> None:
        """Close the connection because it has been silent too long."""

"""The contract of a connection to the policy server, and the table of the connections."""

from typing import Protocol, cast

from policybridge_core.plugins import Table
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions, Signature, Values


class ClientSession(Protocol):
    """One compilation's session, bound to one policy version. It may be used from one thread at a time."""

    @property
    def id(self) -> str:
        """The server's id of this session."""
        ...

    @property
    def policy(self) -> PolicyVersion:
        """The version that answers every observation of this session."""
        ...

    @property
    def log_probability(self) -> float | None:
        """The log-probability with which the last advice was chosen; ``None`` in a session that does not explore."""
        ...

    def evaluate(self, observation: Values) -> Values:
        """Send one record of the features; return one record of the advice.

        Raises:
            PolicyBridgeError: there is no advice. After any error the session is closed.

        """
        ...

    def context(self, name: str) -> None:
        """Tell the server that the next observations belong to the function (or module) ``name``."""
        ...

    def report(self, outcome: Outcome) -> None:
        """Report the outcome. When this returns, the ledger holds it and every decision of this session.

        A later report adds values to the outcome; a value of the same name replaces the earlier one.

        Raises:
            UnsupportedError: the server has no ledger.
            PolicyBridgeError: the ledger does not hold the outcome. After any error the session is closed.

        """
        ...

    def close(self) -> None:
        """End the session. A second call does nothing."""
        ...


class Connection(Protocol):
    """A connection to one server. Its timeout, in seconds, limits each wait for the server: opening, each decision."""

    def open(
        self,
        policy: PolicyReference,
        signature: Signature,
        options: SessionOptions,
    ) -> ClientSession:
        """Open a session.

        Raises:
            PolicyBridgeError: the policy is unknown, the signature does not fit it, the server cannot be reached, or it
                does not answer in time.

        """
        ...

    def check(self) -> None:
        """Check that the server can be reached.

        Raises:
            UnavailableError: it cannot be reached.

        """
        ...

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:
        """Report the outcome of a session, from any process and also after its end; see `ClientSession.report`.

        Raises:
            NotFoundError: the ledger has no such session.
            UnsupportedError: the server has no ledger.
            PolicyBridgeError: the ledger does not hold the outcome.

        """
        ...

    def close(self) -> None:
        """Close the connection; its sessions end."""
        ...


CONNECTIONS = Table(
    kind="connection",
    group="policybridge.connections",
    own={
        "grpc": "policybridge_client.grpc:GrpcConnection",
        "socket": "policybridge_client.socket:SocketConnection",
        "inprocess": "policybridge_server.embedded:EmbeddedConnection [server]",
        "mlbridge-pipe": "policybridge_client.pipe:PipeConnection",
    },
)


def connect(address: str, *, timeout: float = 10.0) -> Connection:
    """Make a connection. Nothing is sent until it is used.

    Args:
        address: ``socket:PATH``, ``grpc:HOST:PORT``, ``grpc:unix:PATH``, ``inprocess:REPOSITORY``,
            ``mlbridge-pipe:BASE``, or ``NAME:TARGET`` of another distribution's connection; a path without a name is a
            socket, anything else without a name is a gRPC target. A gRPC target may be followed by ``,serdes=NAME``.
        timeout: limit of each wait for the server, in seconds.

    """
    scheme, _, target = address.partition(":")
    if scheme not in CONNECTIONS:
        scheme, target = ("socket" if "/" in address and not address.startswith("unix:") else "grpc"), address
    kind = cast("type[_Made]", CONNECTIONS.load(scheme))
    return kind(target, timeout)


class _Made(Connection, Protocol):
    def __init__(self, target: str, timeout: float) -> None: ...

"""The contract of a connection to the policy server, and the table of the connections."""

from typing import Protocol, cast

from policybridge_core.plugins import Table
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions, Signature, Values


class ClientSession(Protocol):
    """One compilation's conversation, bound to one policy version. For one thread."""

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
        """Ask for one decision: one record of the features in, one record of the advice out.

        Raises:
            PolicyBridgeError: there is no advice. The session is over then, whatever the reason.

        """
        ...

    def context(self, name: str) -> None:
        """Say that the following observations belong to the function (or module) ``name``."""
        ...

    def report(self, outcome: Outcome) -> None:
        """Say what the compilation came to; on return the ledger holds that and every decision of this session.

        A later report adds to it: a name that came before gets its new value.

        Raises:
            UnsupportedError: the server keeps no ledger.
            PolicyBridgeError: it is not held. The session is over then, whatever the reason.

        """
        ...

    def close(self) -> None:
        """End the session; twice is once."""
        ...


class Connection(Protocol):
    """A way to one server. ``timeout`` (seconds) bounds every wait for it, opening and each decision alike."""

    def open(
        self,
        policy: PolicyReference,
        signature: Signature,
        options: SessionOptions,
    ) -> ClientSession:
        """Open a session.

        Raises:
            PolicyBridgeError: unknown policy, a signature that does not fit, no server, no answer in time.

        """
        ...

    def check(self) -> None:
        """Find out whether the server can be reached.

        Raises:
            UnavailableError: it cannot.

        """
        ...

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:
        """Say what the compilation of a session came to, from any process, also after the session; as its `report`.

        Raises:
            NotFoundError: the ledger has no such session.
            UnsupportedError: the server keeps no ledger.
            PolicyBridgeError: it is not held.

        """
        ...

    def close(self) -> None:
        """Give back what the connection holds; its sessions end."""
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
    """Make a connection; nothing is sent before it is used.

    Args:
        address: ``socket:PATH``, ``grpc:HOST:PORT``, ``grpc:unix:PATH``, ``inprocess:REPOSITORY``,
            ``mlbridge-pipe:BASE``, or ``NAME:TARGET`` of another distribution's connection; a path without a name is a
            socket, anything else without a name is a gRPC target. Behind a gRPC target may stand ``,serdes=NAME``.
        timeout: seconds, for each wait.

    """
    scheme, _, target = address.partition(":")
    if scheme not in CONNECTIONS:
        scheme, target = ("socket" if "/" in address and not address.startswith("unix:") else "grpc"), address
    kind = cast("type[_Made]", CONNECTIONS.load(scheme))
    return kind(target, timeout)


class _Made(Connection, Protocol):
    def __init__(self, target: str, timeout: float) -> None: ...

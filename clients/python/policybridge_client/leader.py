"""A replica's calls to its leader: a client of the ReplicationService."""

import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import grpc

from policybridge.v1 import replication_service_pb2 as pb
from policybridge.v1.replication_service_pb2_grpc import ReplicationServiceStub
from policybridge.v1.repository_service_pb2 import FileChunk
from policybridge_client.credentials import Credentials
from policybridge_client.grpc_channel import close_channel, open_channel, split_address, token_metadata, was_closed
from policybridge_client.grpc_stream import error_of
from policybridge_core.closing import Closing
from policybridge_core.errors import DeadlineError, InvalidError, UnavailableError

_LONGEST: Final = 120.0
"""Limit of a download, in seconds."""

_PATIENCE: Final = 60.0
"""Seconds within which a leader tells its policies; it does so at once, and then whenever one changes."""

_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    # Without keepalive, a leader whose machine is gone would never be noticed.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Of gRPC's own pings, during which it sends none for keepalive; a minute by default.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # By default gRPC waits up to two minutes before it connects again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # In spite of its name the limit of one attempt to connect, the handshakes included; 20 s by default.
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_receive_message_length", -1),
)


class LeaderLink(Closing):
    """One replica's calls to its leader. `close` may be called from any thread.

    Args:
        address: the leader's: ``grpc:HOST:PORT``, ``grpcs:HOST:PORT`` or ``grpc:unix:PATH``.
        ca: see `Credentials`; by default the file that the environment names.
        certificate: likewise.
        key: likewise.
        token_file: likewise.
        patience: limit of the wait for the leader's first message, in seconds.

    Raises:
        InvalidError: the address is not one of gRPC, a file cannot be read, or the token would be sent in plaintext.

    """

    def __init__(  # noqa: PLR0913 - by keyword
        self,
        address: str,
        ca: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        token_file: Path | None = None,
        *,
        patience: float = _PATIENCE,
    ) -> None:
        scheme = address.partition(":")[0]
        if scheme not in ("grpc", "grpcs"):
            raise InvalidError(f"the leader {address!r} is not grpc:HOST:PORT, grpcs:HOST:PORT or grpc:unix:PATH")
        self._target, secure = split_address(address)
        default = Credentials.from_environment()
        shown = Credentials(
            ca or default.ca, certificate or default.certificate, key or default.key, token_file or default.token_file
        )
        self._metadata = token_metadata(self._target, shown, secure=secure)
        self._channel = open_channel(self._target, shown, secure=secure, options=_OPTIONS)
        self._made_stub = ReplicationServiceStub(self._channel)
        self._requests: SimpleQueue[pb.FollowRequest | None] = SimpleQueue()
        self._call: Any = None
        self._closed = False
        self._patience = patience

    @property
    def _stub(self) -> ReplicationServiceStub:
        if self._closed:
            raise was_closed(self._target)
        return self._made_stub

    def follow(self, hello: pb.Hello) -> Iterator[pb.FollowResponse]:
        """Give the leader's messages, until `close`.

        Raises:
            PolicyBridgeError: the leader cannot be reached, refuses, or tells nothing at first.

        """
        self._requests.put(None)
        self._requests = SimpleQueue()
        self._requests.put(pb.FollowRequest(hello=hello))
        call: Any = self._stub.Follow(iter(self._requests.get, None), metadata=self._metadata)
        self._call = call
        late = threading.Event()

        def give_up() -> None:
            late.set()
            call.cancel()

        # A leader that hangs may still answer the pings of keepalive.
        timer = threading.Timer(self._patience, give_up)
        timer.daemon = True
        timer.start()
        try:
            for response in self._received(call):
                timer.cancel()
                yield response
        except UnavailableError as failure:
            if not late.is_set():
                raise
            raise DeadlineError(f"no word from the leader at {self._target} within {self._patience:g} s") from failure
        finally:
            timer.cancel()

    def adopted(self, adopted: pb.Adopted) -> None:
        """Tell the leader which state this replica serves."""
        self._requests.put(pb.FollowRequest(adopted=adopted))

    def download(self, request: pb.DownloadRequest) -> Iterator[FileChunk]:
        """Give the files of a version.

        Raises:
            PolicyBridgeError: the leader cannot be reached, or no longer has the version.

        """
        return self._received(self._stub.Download(request, timeout=_LONGEST, metadata=self._metadata))

    def _received(self, call: Any) -> Iterator[Any]:
        try:
            yield from call
        except grpc.RpcError as failure:
            if not self._closed:
                raise error_of(failure, self._target) from failure

    def close(self) -> None:
        """End all calls."""
        self._closed = True
        self._requests.put(None)
        if self._call is not None:
            self._call.cancel()
        close_channel(self._channel)

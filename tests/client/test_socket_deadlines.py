"""The Python client on the Unix socket, against a server that is slow or does not close."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_client import connect
from policybridge_client.contract import ClientSession
from policybridge_client.llvm.responder import Patience
from policybridge_core.errors import DeadlineError, PolicyFailedError
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec, pack
from tests.client.peers import OPENED, PAUSE, Peer, Sent

SIGNATURE = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("advice", ElementType.INT64, (100,)))
ERROR = b'{"error":{"status":13,"message":"boom"}}\n'


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    """Collect the peers of the test's sessions."""
    peers: list[Peer] = []
    yield peers
    for peer in peers:
        peer.close()


@pytest.fixture
def place() -> Iterator[Path]:
    with TemporaryDirectory(prefix="pb-") as folder:
        yield Path(folder) / "s"


def opened(path: Path, timeout: float) -> ClientSession:
    return connect(f"socket:{path}", timeout=timeout).open(PolicyReference("p"), SIGNATURE, SessionOptions())


def decide(session: ClientSession) -> object:
    return session.evaluate(pack(SIGNATURE.features, {"x": 1}))


def test_a_hello_that_trickles_meets_the_deadline_as_a_whole(peers: list[Peer], place: Path) -> None:
    peers.append(Peer(place, tuple([b"{", PAUSE] * 20), (), 0))
    with pytest.raises(DeadlineError, match=r"within 0\.5 s"):
        opened(place, 0.5)


@pytest.mark.parametrize("first", [b"\0", b"\1"])
def test_a_reply_that_trickles_meets_the_deadline_as_a_whole(peers: list[Peer], place: Path, first: bytes) -> None:
    peers.append(Peer(place, (OPENED,), (first, *[PAUSE, b"\0"] * 20), 1))
    session = opened(place, 0.5)
    with pytest.raises(DeadlineError, match=r"within 0\.5 s"):
        decide(session)


@pytest.mark.parametrize("parts", [(b"\1" + ERROR,), (b"\1", ERROR[:9], PAUSE, ERROR[9:])], ids=["whole", "parts"])
def test_an_error_is_read_from_a_server_that_does_not_close(
    peers: list[Peer], place: Path, parts: tuple[Sent, ...]
) -> None:
    peers.append(Peer(place, (OPENED,), (*parts, *[PAUSE] * 1000), 1))
    session = opened(place, 100)
    with pytest.raises(PolicyFailedError, match="boom"):
        decide(session)


def test_waits_that_each_are_short_enough_are_bounded_together() -> None:
    patience = Patience(10)
    for _ in range(3):
        patience.count(9_000_000_000)
        patience.check()
    patience.count(9_000_000_000)
    with pytest.raises(DeadlineError, match="36 s for 4 decisions, and has 34 s"):
        patience.check()


def test_a_slow_policy_with_many_decisions_keeps_its_time() -> None:
    patience = Patience(10)
    for _ in range(1000):
        patience.count(900_000_000)
        patience.check()

"""A gRPC server that dies, lies or falls silent: each call ends in time, with an error of ours, and the client ends."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from policybridge.v1 import replication_service_pb2 as replication
from policybridge_client.grpc import GrpcConnection, GrpcSession
from policybridge_client.leader import LeaderLink
from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import DeadlineError, PolicyBridgeError, PreconditionError, UnavailableError
from policybridge_serdes import (
    ElementType,
    Outcome,
    PolicyReference,
    SessionOptions,
    Signature,
    TensorSpec,
    zeros,
)
from tests.client.hostile_peer import FAULTS, OPENED, SILENCES, WIDE, HostilePeer, Serve, hostile
from tests.client.leaving import leaving
from tests.server.following.replicas import leading
from tests.server.grpc.raw_peer import RST_STREAM, SETTINGS, frame, word
from tests.server.publishing.policies import write_policy

pytestmark = pytest.mark.timeout(60)

ADVICE = TensorSpec("advice", ElementType.INT64)
SMALL = Signature.of([TensorSpec("x", ElementType.INT64)], ADVICE)
LARGE = Signature.of([TensorSpec("x", ElementType.INT64, (4 << 20,))], ADVICE)
OUTCOME = Outcome({"size": 1.0})

ASKS: Final[Mapping[str, Callable[[GrpcSession], object]]] = {
    "evaluate": lambda session: session.evaluate(zeros(SMALL.features)),
    "form": lambda session: session.form(session.forms[""]),
    "report": lambda session: session.report(OUTCOME),
    "conclude": lambda session: session.conclude(OUTCOME),
}
LATER: Final[Mapping[str, Callable[[GrpcSession], object]]] = {
    **ASKS,
    "finish": GrpcSession.finish,
    "decided": lambda session: session.decided(1, 1, bytes(16)),
}


def connection(address: str, timeout: float = 1) -> GrpcConnection:
    return GrpcConnection(address.removeprefix("grpc:"), timeout)


def opened(connection: GrpcConnection, signature: Signature = SMALL) -> GrpcSession:
    return connection.open(PolicyReference("p"), signature, SessionOptions(evaluates=True))


def answering(then: Serve = HostilePeer.await_end, *, opens: bool = True) -> Serve:
    """Give what opens a session, and answers the next request by ``then``; or the opening, already."""

    def serve(peer: HostilePeer) -> None:
        while True:
            peer.await_call()
            peer.await_message()
            if opens:
                peer.answer(OPENED)
                peer.await_message()
            then(peer)

    return serve


def check_over(session: GrpcSession) -> None:
    for ask in LATER.values():
        with pytest.raises(PreconditionError, match="the session is over"):
            ask(session)
    session.context("f")
    session.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_an_opening_that_fails_is_an_error_of_ours_before_the_time_out(fault: str) -> None:
    with (
        hostile(answering(FAULTS[fault], opens=False)) as address,
        connection(address, 30) as connected,
        pytest.raises(PolicyBridgeError) as raised,
    ):
        opened(connected)
    assert not isinstance(raised.value, DeadlineError)


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_request_that_fails_ends_the_session_before_the_time_out(fault: str, ask: str) -> None:
    with hostile(answering(FAULTS[fault])) as address, connection(address, 30) as connected:
        session = opened(connected)
        with pytest.raises(PolicyBridgeError) as raised:
            ASKS[ask](session)
        assert not isinstance(raised.value, DeadlineError)
        check_over(session)


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("silence", SILENCES)
def test_an_answer_that_does_not_come_ends_the_session_after_the_time_out(silence: str, ask: str) -> None:
    with hostile(answering(SILENCES[silence])) as address, connection(address, 0.5) as connected:
        session = opened(connected)
        with pytest.raises(DeadlineError, match=address.removeprefix("grpc:")):
            ASKS[ask](session)
        check_over(session)


@pytest.mark.parametrize("silence", SILENCES)
def test_an_opening_whose_answer_does_not_come_ends_after_the_time_out(silence: str) -> None:
    with (
        hostile(answering(SILENCES[silence], opens=False)) as address,
        connection(address, 0.5) as connected,
        pytest.raises(DeadlineError, match=address.removeprefix("grpc:")),
    ):
        opened(connected)


def test_a_session_that_is_refused_late_and_opened_again_has_one_time_out_for_both() -> None:
    def serve(peer: HostilePeer) -> None:
        peer.await_call()
        peer.await_message()
        threading.Event().wait(9)
        peer.send(frame(RST_STREAM, 0, peer.call, word(7)))
        peer.await_end()

    begun = monotonic()
    with hostile(serve) as address, connection(address, 10) as connected, pytest.raises(DeadlineError):
        opened(connected)
    # With a time-out of its own for the second one it would be 19 s.
    assert monotonic() - begun < 17


@pytest.mark.parametrize("greeting", [b"", frame(SETTINGS, 0, 0, b"\0\4" + word(0))], ids=["none", "no window"])
def test_a_server_that_takes_no_request_is_waited_for_until_the_time_out(greeting: bytes) -> None:
    with (
        hostile(answering(), greeting) as address,
        connection(address, 0.5) as connected,
        pytest.raises(DeadlineError, match=address.removeprefix("grpc:")),
    ):
        opened(connected)


def test_decisions_for_a_server_that_takes_none_are_not_collected_without_a_bound() -> None:
    def serve(peer: HostilePeer) -> None:
        peer.await_call()
        peer.await_message()
        peer.answer(OPENED)

    with hostile(serve) as address, connection(address, 0.5) as connected:
        session = opened(connected)
        with pytest.raises(DeadlineError, match="no answer from the server"):
            decide(session, 1 << 15)
        check_over(session)


def test_decisions_for_a_server_that_has_gone_are_refused() -> None:
    with hostile(answering(HostilePeer.leave)) as address, connection(address, 30) as connected:
        session = opened(connected)
        with pytest.raises(UnavailableError, match=address.removeprefix("grpc:")):
            decide(session, 16)
        check_over(session)


def decide(session: GrpcSession, size: int) -> None:
    for _ in range(1 << 14):
        session.decided(1, 1, bytes(size))


def stopped(peer: HostilePeer) -> None:
    """Answer the opening, and read no more."""
    peer.await_call()
    peer.await_message()
    peer.answer(OPENED)


def test_a_request_that_the_kernel_does_not_take_ends_after_the_time_out_and_the_connection_closes() -> None:
    with hostile(stopped, WIDE) as address, connection(address) as connected:
        session = opened(connected, LARGE)
        with pytest.raises(DeadlineError, match=address.removeprefix("grpc:")):
            session.evaluate(zeros(LARGE.features))
        check_over(session)


def test_a_record_that_the_kernel_does_not_take_is_given_up_and_the_connection_closes() -> None:
    with hostile(stopped, WIDE) as address, connection(address) as connected:
        session = opened(connected)
        with pytest.raises(DeadlineError, match=address.removeprefix("grpc:")):
            session.send_record(bytes(16 << 20))


def test_a_call_whose_request_the_kernel_does_not_take_ends_after_the_time_out() -> None:
    with hostile(HostilePeer.await_call, WIDE) as address, connection(address) as connected:
        # A small one is stuck behind a large one.
        for features in (LARGE.features, SMALL.features):
            with pytest.raises(DeadlineError, match=address.removeprefix("grpc:")):
                connected.evaluate_once(PolicyReference("p"), features, zeros(features))


def test_a_publication_that_the_kernel_does_not_take_ends_after_the_time_out(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(bytes(32 << 20))
    with (
        hostile(HostilePeer.await_call, WIDE) as address,
        RepositoryClient(address, timeout=1) as client,
        pytest.raises(DeadlineError, match=address.removeprefix("grpc:")),
    ):
        client.publish("p", tmp_path)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_call_of_a_repository_that_fails_is_an_error_of_ours(fault: str) -> None:
    with (
        hostile(answering(FAULTS[fault], opens=False)) as address,
        RepositoryClient(address, timeout=2) as client,
        pytest.raises(PolicyBridgeError),
    ):
        client.policies()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_replica_sees_that_its_leader_fails(fault: str) -> None:
    def serve(peer: HostilePeer) -> None:
        peer.await_call()
        peer.await_message()
        FAULTS[fault](peer)

    with hostile(serve) as address, LeaderLink(address) as link, suppress(PolicyBridgeError):
        for _ in link.follow(replication.Hello(id="x")):
            return


def test_a_replica_waits_for_a_leader_that_is_slow_to_connect() -> None:
    def serve(peer: HostilePeer) -> None:
        if threading.Event().wait(1.5):
            return
        peer.send(frame(SETTINGS, 0, 0))
        peer.await_call()
        peer.answer(replication.FollowResponse(revision=7))
        peer.await_end()

    with hostile(serve, b"") as address, LeaderLink(address) as link:
        assert next(link.follow(replication.Hello(id="x"))).revision == 7


def test_a_replica_does_not_wait_for_ever_for_a_leader_that_tells_nothing() -> None:
    def serve(peer: HostilePeer) -> None:
        peer.await_call()
        peer.await_message()
        peer.await_end()

    with (
        hostile(serve) as address,
        LeaderLink(address, patience=0.5) as link,
        pytest.raises(DeadlineError, match="no word from the leader"),
    ):
        next(link.follow(replication.Hello(id="x")))


def test_a_replica_follows_a_leader_again_that_left_as_it_came(tmp_path: Path) -> None:
    with leading(write_policy(tmp_path / "policies").parent, tmp_path / "l") as (_, running):
        port = int(running.grpc.rpartition(":")[2])
        with leaving(port) as door, LeaderLink(f"grpc:127.0.0.1:{door}") as link:
            with pytest.raises(UnavailableError):
                next(link.follow(replication.Hello(id="x")))
            assert len(next(link.follow(replication.Hello(id="x"))).policies) == 1

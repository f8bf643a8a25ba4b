"""A replica that tells the leader very long texts: they are cut or refused, and nobody waits for them."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from policybridge.v1 import replication_service_pb2 as pb
from policybridge.v1.replication_service_pb2_grpc import ReplicationServiceStub
from policybridge_core.text import PeerText
from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python
from tests.server.publishing.policies import wait_for

ESCAPE = "\x1b[2J\n2026-01-01T00:00:00.000Z ERROR forged"


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[RunningServer]:
    write_python(tmp_path, "one", answering("1"))
    with TemporaryDirectory(prefix="pb-") as folder, running_server(tmp_path, Path(folder)) as running:
        yield running


def told(channel: grpc.Channel, *messages: pb.FollowRequest) -> Iterator[pb.FollowResponse]:
    yield from ReplicationServiceStub(channel).Follow(iter(messages))


def lacking(count: int, reason: str) -> pb.FollowRequest:
    return pb.FollowRequest(adopted=pb.Adopted(revision=1, lacks=[pb.Lack(policy=ESCAPE, reason=reason)] * count))


def test_what_is_kept_of_a_replica_is_cut_and_printable(leader: RunningServer) -> None:
    hello = pb.FollowRequest(hello=pb.Hello(id="hostile", name=ESCAPE + "x" * 5000))
    with grpc.insecure_channel(leader.grpc.removeprefix("grpc:")) as channel:
        answers = told(channel, hello, lacking(200, ESCAPE + "y" * 4000))
        next(answers)
        stub = ReplicationServiceStub(channel)

        def known() -> list[pb.Replica]:
            return list(stub.Replicas(pb.ReplicasRequest()).replicas)

        wait_for(lambda: bool(known()[0].lacks))
        (replica,) = known()
    texts = [replica.name, *(text for lack in replica.lacks for text in (lack.policy, lack.reason))]
    assert len(replica.lacks) == 100
    assert all(len(text) <= PeerText.LONGEST and text.isprintable() for text in texts)


def test_a_message_of_very_long_texts_ends_the_call(leader: RunningServer) -> None:
    hello = pb.FollowRequest(hello=pb.Hello(id="hostile"))
    with grpc.insecure_channel(leader.grpc.removeprefix("grpc:")) as channel:
        for message, why in (
            (lacking(1, "y" * 100_000), "reason is a text of 100000 bytes"),
            (lacking(1, "y" * (60 << 20)), "a message of"),
        ):
            with pytest.raises(grpc.RpcError, match=why):
                list(told(channel, hello, message))

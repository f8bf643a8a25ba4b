"""The server of a training run, as other machines reach it."""

from pathlib import Path

import grpc

from policybridge_train.trajectories.server import TrainingServer
from tests.server.access.doors import evaluated, listed, published, retired, rolled_back, session_opened
from tests.server.following.replicas import replica
from tests.server.publishing.policies import wait_for, write_policy

CALLS = (evaluated, session_opened, listed, published, rolled_back, retired)


def test_other_machines_can_follow_the_server_of_a_run_by_its_token_and_do_nothing_else(tmp_path: Path) -> None:
    write_policy(tmp_path / "run" / "policies")
    with TrainingServer(tmp_path / "run", host="127.0.0.1") as server:
        leader = server.leader
        assert leader.follow == f"grpcs:{server.outside}"
        assert server.outside is not None
        with grpc.insecure_channel(server.outside) as channel:
            assert {call(channel, leader.token) for call in CALLS} == {"UNAVAILABLE"}
        with grpc.secure_channel(server.outside, grpc.ssl_channel_credentials(leader.ca)) as channel:
            assert {call(channel) for call in CALLS} == {"UNAUTHENTICATED"}
            assert {call(channel, leader.token) for call in CALLS} == {"PERMISSION_DENIED"}
        for name, content in (("ca", leader.ca), ("token", leader.token.encode())):
            (tmp_path / name).write_bytes(content)
        shown = ["--follow-ca", tmp_path / "ca", "--follow-token-file", tmp_path / "token"]
        with replica(leader.follow, tmp_path / "r", *shown) as (follower, _):
            wait_for(lambda: "adder" in [each.name for each in follower.repository.policies()])

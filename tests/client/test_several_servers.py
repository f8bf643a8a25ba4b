"""Clients of several servers: the first that answers is asked, and a session stays with it."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from policybridge_client.addresses import split_addresses
from policybridge_client.connection import connect
from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError, UnavailableError
from policybridge_serdes import Outcome, PolicyReference, SessionOptions
from tests.conftest import RunningServer, running_server
from tests.server.publishing.policies import SIGNATURE, ask, wait_for, write_policy


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[RunningServer]]:
    """Give two servers, whose policies add 1 and 2."""
    with ExitStack() as stack:
        given = []
        for number in (1, 2):
            write_policy(tmp_path / f"policies{number}", number=number)
            (tmp_path / f"s{number}").mkdir()
            ledger = ["--ledger", tmp_path / f"{number}.db"]
            given.append(
                stack.enter_context(running_server(tmp_path / f"policies{number}", tmp_path / f"s{number}", *ledger))
            )
        yield given


def test_a_session_goes_to_the_first_server_that_answers_and_stays_with_it(
    servers: list[RunningServer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = servers
    nobody = f"socket:{tmp_path}/nobody"
    monkeypatch.setenv("POLICYBRIDGE_SERVER", f"{nobody},{first.grpc}, {second.grpc}")
    reference = PolicyReference.parse("adder")
    with connect(timeout=60) as several:
        several.check()
        session = several.open(reference, SIGNATURE, SessionOptions())
        assert ask(session) == 1
        with pytest.raises(NotFoundError):
            # An answer is an answer: the next server is not asked for what the first refuses.
            several.open(PolicyReference.parse("adder@9"), SIGNATURE, SessionOptions())
        other = connect(second.socket, timeout=60).open(reference, SIGNATURE, SessionOptions())
        assert ask(other) == 2
        other.close()
        # The outcome finds the ledger that has the session.
        several.report_outcome(other.id, Outcome({"text": 1.0}))
        with pytest.raises(NotFoundError):
            several.report_outcome("0" * 32, Outcome({"text": 1.0}))
        first.kill()
        with pytest.raises(PolicyBridgeError):
            ask(session)
        assert ask(several.open(reference, SIGNATURE, SessionOptions())) == 2
        second.kill()
        with pytest.raises(UnavailableError, match=r"none of 3 servers answers: .*nobody"):
            several.open(reference, SIGNATURE, SessionOptions())


def test_the_socket_of_this_machine_is_preferred_and_grpc_spreads_sessions_over_a_list(
    servers: list[RunningServer],
) -> None:
    first, second = servers
    reference = PolicyReference.parse("adder")
    with connect(f"{first.grpc},{second.socket}", timeout=60) as several:
        assert ask(several.open(reference, SIGNATURE, SessionOptions())) == 2
    one, two = (each.grpc.removeprefix("grpc:") for each in servers)
    with connect(f"grpc:ipv4:{one},{two}", timeout=60) as many:
        answered = set[float]()

        def have_both_answered() -> bool:
            answered.add(ask(many.open(reference, SIGNATURE, SessionOptions())))
            return answered == {1, 2}

        # gRPC gives sessions to a server of the list once it has connected to it.
        wait_for(have_both_answered)
    with connect(f"grpc:dns:///localhost:{one.rpartition(':')[2]}", timeout=60) as named:
        assert ask(named.open(reference, SIGNATURE, SessionOptions())) == 1


def test_a_server_that_does_not_answer_is_asked_after_the_others(
    servers: list[RunningServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    reference = PolicyReference.parse("adder")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        silent.settimeout(60)
        addresses = f"socket:{tmp_path}/silent,{servers[0].socket}"
        with connect(addresses, timeout=0.2) as several:
            assert ask(several.open(reference, SIGNATURE, SessionOptions())) == 1
        silent.accept()[0].close()
        silent.settimeout(0)
        # Another process of the build does not wait for it again.
        with connect(addresses, timeout=0.2) as several:
            assert ask(several.open(reference, SIGNATURE, SessionOptions())) == 1
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_comma_parts_addresses_only_before_the_name_of_a_kind() -> None:
    def split(text: str) -> list[str]:
        return split_addresses(text)

    assert split("socket:/a,b/c, grpc:h:1,serdes=json,grpcs:h:2") == [
        "socket:/a,b/c",
        "grpc:h:1,serdes=json",
        "grpcs:h:2",
    ]
    assert split("grpc:ipv4:1.2.3.4:5,6.7.8.9:10") == ["grpc:ipv4:1.2.3.4:5,6.7.8.9:10"]
    with pytest.raises(InvalidError, match="each address of a list begins with its kind"):
        connect("grpc:a:1,b:2")
    with pytest.raises(InvalidError, match="no server is named"):
        connect("")

"""Python's outcome and end in one exchange: an acknowledged record is whole."""

import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from policybridge.v1 import policy_service_pb2 as pb
from policybridge_bench.network import SIGNATURE
from policybridge_client.contract import ClientSession, conclude
from policybridge_client.local import decide_here
from policybridge_client.runner import open_runner
from policybridge_client.spool import Spool
from policybridge_core.errors import PreconditionError, UnavailableError, UnsupportedError
from policybridge_serdes import Outcome, SessionOptions
from policybridge_serdes.interactive import end_line, header_line, outcome_line
from policybridge_server.ledger.query import SessionRecord
from policybridge_server.ledger.reader import LedgerReader
from tests.client.peers import OPENED, Peer
from tests.conftest import ServerFactory, running_server
from tests.peers.servicer import SessionServicer, served
from tests.server.ledger.asking import ask, await_forms, open_network, rows
from tests.server.ledger.conftest import Recording

OUTCOME = Outcome({"text": 128.0}, "ok")
RECORDED = b'\0{"recorded":true}\n'


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def opened(address: str, *, here: bool, spool: Spool | None = None) -> ClientSession:
    if not here:
        return open_network(address)
    await_forms(address)
    return decide_here(open_network(address, SessionOptions(evaluates=True)), SIGNATURE, asks=False, spool=spool)


def assert_whole(found: SessionRecord, decisions: int) -> None:
    assert (found.outcome, found.decisions, found.lost) == (OUTCOME, decisions, 0)
    assert found.closed is not None
    assert not found.interrupted


@pytest.mark.parametrize("here", [False, True])
def test_outcome_and_end_are_in_the_ledger_when_they_are_acknowledged(
    policies: Path, tmp_path: Path, here: bool
) -> None:
    for scheme in ("socket", "grpc"):
        with TemporaryDirectory(prefix="pb-") as folder:
            ledger = tmp_path / f"{scheme}.db"
            with running_server(policies, Path(folder), "--ledger", ledger) as server:
                session = opened(getattr(server, scheme), here=here)
                ask(session, rows(20))
                conclude(session, OUTCOME)
                server.kill()
            # The next server marks the open sessions of the killed one as interrupted.
            with running_server(policies, Path(folder), "--ledger", ledger), LedgerReader(ledger) as reader:
                assert_whole(reader.session(session.id), 20)


@pytest.mark.parametrize("here", [False, True])
def test_a_session_is_over_when_it_is_concluded(recording: Recording, address: str, here: bool) -> None:
    session = opened(address, here=here)
    ask(session, rows(3))
    conclude(session, OUTCOME)
    for late in (lambda: conclude(session, OUTCOME), lambda: ask(session, rows(1))):
        with pytest.raises(PreconditionError, match="the session is over"):
            late()
    with recording.reader() as reader:
        assert_whole(reader.session(session.id), 3)


def test_a_runner_ends_with_its_outcome(recording: Recording, address: str) -> None:
    features, advice = SIGNATURE.features.specs, SIGNATURE.advice
    with open_runner(address, policy="network", features=features, advice=advice) as runner:
        runner.evaluate()
        runner.conclude("ok", text=128.0)
        with pytest.raises(PreconditionError, match="over"):
            runner.evaluate()
    with recording.reader() as reader:
        assert_whole(reader.session(runner.session_id), 1)


@pytest.mark.parametrize("here", [False, True])
def test_without_a_ledger_a_session_is_refused_its_outcome_and_ends(
    policies: Path, server_factory: ServerFactory, here: bool
) -> None:
    server = server_factory(policies)
    for address in (server.socket, server.grpc):
        session = opened(address, here=here)
        ask(session, rows(1))
        with pytest.raises(UnsupportedError, match="keeps no ledger"):
            conclude(session, OUTCOME)
        with pytest.raises(PreconditionError, match="the session is over"):
            ask(session, rows(1))


def test_an_outcome_that_nobody_acknowledged_is_sent_by_the_next_client(policies: Path, tmp_path: Path) -> None:
    with TemporaryDirectory(prefix="pb-") as folder:
        ledger = tmp_path / "ledger.db"
        with running_server(policies, Path(folder), "--ledger", ledger) as server:
            session = opened(server.socket, here=True, spool=Spool())
            ask(session, rows(5))
            server.kill()
            with pytest.raises(UnavailableError):
                conclude(session, OUTCOME)
        with running_server(policies, Path(folder), "--ledger", ledger) as server:
            conclude(opened(server.socket, here=True, spool=Spool()), OUTCOME)
            with LedgerReader(ledger) as reader:
                assert_whole(reader.session(session.id), 5)


@pytest.mark.parametrize("together", [True, False])
def test_over_a_socket_the_outcome_and_the_end_are_each_answered_whether_they_come_together_or_apart(
    recording: Recording, together: bool
) -> None:
    with socket.socket(socket.AF_UNIX) as peer, peer.makefile("rb") as answers:
        peer.connect(recording.server.socket.removeprefix("socket:"))
        peer.sendall(b'{"policybridge":1,"policy":"network"}\n' + header_line(SIGNATURE))
        assert b'"session"' in answers.readline()
        if together:
            peer.sendall(outcome_line(OUTCOME) + end_line())
        else:
            peer.sendall(outcome_line(OUTCOME))
            assert answers.readline() == RECORDED
            peer.sendall(end_line())
        assert answers.read() == RECORDED * (1 + together)


def test_a_client_that_closes_its_own_half_after_its_end_reads_that_its_record_is_kept(recording: Recording) -> None:
    with socket.socket(socket.AF_UNIX) as peer, peer.makefile("rb") as answers:
        peer.connect(recording.server.socket.removeprefix("socket:"))
        peer.sendall(b'{"policybridge":1,"policy":"network"}\n' + header_line(SIGNATURE))
        assert b'"session"' in answers.readline()
        peer.sendall(outcome_line(OUTCOME) + end_line())
        peer.shutdown(socket.SHUT_WR)
        assert answers.read() == RECORDED * 2


@pytest.mark.parametrize("answers", [RECORDED * 2, RECORDED])
def test_a_socket_gets_both_lines_at_once_and_must_answer_both(answers: bytes) -> None:
    with TemporaryDirectory(prefix="pb-") as folder:
        peer = Peer(Path(folder) / "s", (OPENED,), (answers,), 1)
        try:
            session = open_network(f"socket:{folder}/s")
            if answers == RECORDED:
                with pytest.raises(UnavailableError):
                    conclude(session, OUTCOME)
            else:
                conclude(session, OUTCOME)
            (asked,) = peer.observed
            assert asked.endswith(b'\n{"end":true}\n')
            assert b'{"outcome":' in asked
        finally:
            peer.close()


class _AnswersAtTheEnd(SessionServicer):
    """Answers the outcome when the client has sent all."""

    def __init__(self, *, well: bool) -> None:
        self._well = well

    def Session(  # noqa: N802
        self, requests: Iterator[pb.SessionRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.SessionResponse]:
        next(requests)
        yield pb.SessionResponse(opened=pb.Opened(session_id="s", policy=pb.PolicyVersion(name="network", version=1)))
        (last,) = requests
        assert last.HasField("outcome")
        yield pb.SessionResponse(outcome_recorded=pb.OutcomeRecorded())
        if not self._well:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the ledger is away")


@pytest.mark.parametrize("well", [True, False])
def test_over_grpc_the_stream_ends_with_the_outcome_and_its_status_counts(well: bool) -> None:
    with served(_AnswersAtTheEnd(well=well)) as address:
        session = open_network(address)
        if well:
            conclude(session, OUTCOME)
        else:
            with pytest.raises(UnavailableError, match="the ledger is away"):
                conclude(session, OUTCOME)

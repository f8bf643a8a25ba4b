"""The record of a session that a server has not acknowledged: its client sends it again."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from policybridge_bench.network import SIGNATURE
from policybridge_client.connection import connect
from policybridge_client.contract import FormSession
from policybridge_client.credentials import Credentials
from policybridge_client.record import Record
from policybridge_core.errors import (
    InvalidError,
    NotFoundError,
    PermissionDeniedError,
    PolicyBridgeError,
    PreconditionError,
    UnavailableError,
    UnsupportedError,
)
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions
from policybridge_serdes.interactive import context_line, decided_lines, header_line, observation_lines, outcome_line
from policybridge_server.ledger.reader import LedgerReader
from tests.certificates import token, write_tokens
from tests.conftest import running_server
from tests.server.ledger.asking import await_forms, rows
from tests.server.ledger.conftest import Recording

EVALUATES = SessionOptions("main.c", labels={"commit": "1"}, evaluates=True)
NOBODY = f"{7:032x}"


@pytest.fixture(autouse=True, scope="module")
def _made(recording: Recording) -> None:
    await_forms(recording.server.socket)


def opened(address: str, credentials: Credentials | None = None) -> FormSession:
    connection = connect(address, credentials=credentials)
    session = connection.open(PolicyReference("network"), SIGNATURE, EVALUATES)
    assert isinstance(session, FormSession)
    return session


@contextmanager
def using(address: str, credentials: Credentials | None = None) -> Iterator[FormSession]:
    with closing(opened(address, credentials)) as session:
        yield session


def payload(count: int, seed: int = 1) -> bytes:
    return b"".join(row.tobytes() for row in rows(count, seed)) + np.arange(count, dtype="<i8").tobytes()


def record_of(session: FormSession, messages: Sequence[int], *, named: str = "", digest: str = "") -> bytes:
    """Make a record of a session, with decisions in messages of these sizes and an outcome."""
    policy = session.policy
    version = PolicyVersion(policy.name, policy.version, digest or policy.digest)
    record = Record(named or session.id, version, session.asked, session.options)
    record.note(header_line(SIGNATURE))
    for seed, count in enumerate(messages):
        record.add(decided_lines(count, 5 * count, payload(count, seed)))
        record.note(context_line("f"))
    record.add(outcome_line(Outcome({"text": 128.0}, "ok")))
    return record.whole()


def advices_of(recording: Recording, session_id: str) -> list[int]:
    with recording.reader() as reader:
        batches = reader.trajectory(reader.session(session_id)).batches
        return [each for batch in batches for each in batch.advices["inlining_decision"].reshape(-1).tolist()]


def state_of(ledger: Path, session_id: str) -> tuple[int, int, bool, bool]:
    with LedgerReader(ledger) as reader:
        found = reader.session(session_id)
        return found.decisions, found.lost, found.interrupted, found.closed is not None


def killed_with(policies: Path, folder: Path, messages: Sequence[int]) -> tuple[FormSession, Path]:
    """Give a session whose server was killed when its ledger had the decisions of these messages."""
    ledger = folder / "ledger.db"
    with running_server(policies, folder, "--ledger", ledger) as server:
        await_forms(server.socket)
        session = opened(server.socket)
        for seed, count in enumerate(messages):
            session.decided(count, 5 * count, payload(count, seed))
            session.context("f")
        session.report(Outcome({"text": 1.0}))
        server.kill()
        session.close()
    return session, ledger


@pytest.mark.parametrize("held", [[], [300, 700], [300, 500]], ids=["nothing", "messages", "half a message"])
def test_a_session_goes_on_where_the_ledger_ends_and_is_whole(policies: Path, tmp_path: Path, held: list[int]) -> None:
    # Of [300, 500] the ledger has the first 200 of the second message's 500, which comes as one of 700 again.
    session, ledger = killed_with(policies, tmp_path, held)
    assert state_of(ledger, session.id)[0] == sum(held)
    with running_server(policies, tmp_path, "--ledger", ledger) as server, using(server.socket) as other:
        await_forms(server.socket)
        assert state_of(ledger, session.id) == (sum(held), 0, True, True)
        other.send_record(record_of(session, [300, 700, 9]))
        assert state_of(ledger, session.id) == (1009, 0, False, True)
        other.send_record(record_of(session, [300, 700, 9]))
    assert state_of(ledger, session.id) == (1009, 0, False, True)
    with LedgerReader(ledger) as reader:
        found = reader.session(session.id)
        batches = reader.trajectory(found).batches
    advices = [each for batch in batches for each in batch.advices["inlining_decision"].reshape(-1).tolist()]
    assert advices == [*range(300), *range(700), *range(9)]
    contexts = [each for batch in batches for each in batch.contexts.tolist()]
    assert contexts == ["main.c"] * 300 + ["f"] * 709
    assert found.outcome == Outcome({"text": 128.0}, "ok")
    assert found.labels["evaluated"] == "client"


def test_a_session_that_no_ledger_has_seen_begins_by_its_record(recording: Recording, address: str) -> None:
    name = f"{6:030x}" + ("aa" if "grpc" in address else "bb")
    with using(address) as session:
        session.send_record(record_of(session, [3, 1024], named=name))
    assert state_of(recording.ledger, name) == (1027, 0, False, True)
    assert advices_of(recording, name) == [*range(3), *range(1024)]
    with recording.reader() as reader:
        found = reader.session(name)
    assert found.labels == {"commit": "1", "evaluated": "client"}


def test_the_record_of_a_session_that_still_runs_is_for_later(recording: Recording, address: str) -> None:
    with using(address) as session, using(address) as other:
        session.decided(2, 0, payload(2))
        session.report(Outcome())
        with pytest.raises(UnavailableError, match="still runs"):
            other.send_record(record_of(session, [2, 5]))
        session.decided(1, 0, payload(1))
        session.report(Outcome())
    assert state_of(recording.ledger, session.id)[0] == 3


def test_an_end_is_acknowledged_when_the_ledger_holds_the_session(recording: Recording, address: str) -> None:
    session = opened(address)
    session.decided(5, 0, payload(5))
    session.finish()
    assert state_of(recording.ledger, session.id) == (5, 0, False, True)
    with pytest.raises(PreconditionError, match="over"):
        session.finish()


def ended(address: str) -> FormSession:
    """Give a session with five decisions that is over."""
    session = opened(address)
    session.decided(5, 25, payload(5, 0))
    session.finish()
    return session


def test_a_record_with_fewer_decisions_than_the_ledger_is_refused(recording: Recording, address: str) -> None:
    session = ended(address)
    with using(address) as other, pytest.raises(InvalidError, match="2 decisions of the session more"):
        other.send_record(record_of(session, [3]))
    assert state_of(recording.ledger, session.id)[0] == 5


def test_a_record_of_another_version_is_refused(recording: Recording, address: str) -> None:
    session = ended(address)
    with using(address) as other:
        with pytest.raises(PreconditionError, match="digest"):
            other.send_record(record_of(session, [9], digest="sha256:" + "0" * 64))
        first = connect(address).open(PolicyReference("network", 1), SIGNATURE, EVALUATES)
        assert isinstance(first, FormSession)
        with closing(first), pytest.raises(PreconditionError, match="decided in session"):
            other.send_record(record_of(first, [9], named=session.id))
        with pytest.raises(NotFoundError):
            other.send_record(record_of(session, [9]).replace(b'"version":2', b'"version":77'))
    assert state_of(recording.ledger, session.id)[0] == 5


@pytest.mark.parametrize("name", ["", "..", "x" * 32, f"{7:031x}", f"{7:032X}"[:-1] + "A", "ü" * 200])
def test_a_session_that_none_can_be_called_is_refused(address: str, name: str) -> None:
    with using(address) as session, pytest.raises(InvalidError):
        session.send_record(record_of(session, [1]).replace(session.id.encode(), name.encode()))


def faulty(session: FormSession) -> dict[str, bytes]:
    whole = record_of(session, [4, 4], named=NOBODY)
    line = whole[: whole.index(b"\n") + 1]
    observation = observation_lines(0, rows(1)[0].tobytes(), fixed=True)
    end = b'{"end":true}\n'
    return {
        "no record": b"\x00\xff\n",
        "an endless first line": b"{" * (3 << 20),
        "a hello": b'{"policybridge":1,"policy":"network"}\n' + end if "grpc" in session.server else b"{}\n",
        "an unknown field": line.replace(b"}\n", b',"more":1}\n', 1) + end,
        "an observation": line + header_line(SIGNATURE) + observation + end,
        "a form": line + b'{"form":"sha256:00"}\n' + end,
        "no header": line + decided_lines(1, 0, payload(1)) + end,
        "too many": line + header_line(SIGNATURE) + b'{"decided":9999999}\n' + end,
        "a lie about the number": line + header_line(SIGNATURE) + decided_lines(3, 0, payload(2)) + b"x" * 4096 + end,
        "another end": line + b'{"end":false}\n',
        "another advice": whole.replace(b'"type":"int64_t"', b'"type":"float"'),
    }


@pytest.mark.parametrize(
    "fault",
    [
        "no record",
        "an endless first line",
        "a hello",
        "an unknown field",
        "an observation",
        "a form",
        "no header",
        "too many",
        "a lie about the number",
        "another end",
        "another advice",
    ],
)
def test_a_poisoned_record_is_refused_and_costs_nobody_else_anything(address: str, fault: str) -> None:
    with using(address) as session:
        with pytest.raises(PolicyBridgeError) as refused:
            session.send_record(faulty(session)[fault])
        assert not isinstance(refused.value, UnavailableError)
        session.decided(1, 0, payload(1))
        session.finish()


@pytest.mark.parametrize("transport", ["socket", "grpc"])
def test_half_a_record_leaves_its_session_interrupted_until_the_whole_comes(
    policies: Path, tmp_path: Path, transport: str
) -> None:
    ledger = tmp_path / "ledger.db"
    for whole in (False, True):
        with running_server(policies, tmp_path, "--ledger", ledger) as server:
            await_forms(server.socket)
            with using(getattr(server, transport)) as session:
                record = record_of(session, [4, 4], named=NOBODY)
                if whole:
                    session.send_record(record)
                else:
                    with pytest.raises(PolicyBridgeError):
                        session.send_record(record[: record.rindex(b'{"decided"')] + b"{}\n")
        decisions, *state = state_of(ledger, NOBODY)
        assert state == [0, not whole, True]
        assert decisions == 8 if whole else decisions < 8


def test_records_that_come_at_once_are_kept_once(recording: Recording, address: str) -> None:
    name = f"{9:030x}" + ("aa" if "grpc" in address else "bb")
    with using(address) as session:
        whole = record_of(session, [1024] * 20, named=name)
        failed: list[PolicyBridgeError] = []

        def send() -> None:
            try:
                session.send_record(whole)
            except UnavailableError as error:
                failed.append(error)

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(failed) < 4
    assert state_of(recording.ledger, name) == (20480, 0, False, True)


def test_a_server_without_a_ledger_takes_no_record(policies: Path, tmp_path: Path) -> None:
    with running_server(policies, tmp_path) as server, using(server.socket) as session:
        with pytest.raises(UnsupportedError, match="keeps no ledger"):
            session.send_record(record_of(session, [1]))
        session.finish()


def test_the_session_of_another_client_does_not_go_on(policies: Path, tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens.toml", {"one": ["evaluate"], "two": ["evaluate"]})
    ledger = tmp_path / "ledger.db"

    def shown(name: str) -> Credentials:
        file = tmp_path / name
        file.write_text(token(name))
        file.chmod(0o600)
        return Credentials(token_file=file)

    with running_server(policies, tmp_path, "--ledger", ledger, "--tokens", tokens) as server:
        await_forms(server.socket)
        session = opened(server.grpc, shown("one"))
        session.decided(5, 0, payload(5, 0))
        session.finish()
        with using(server.grpc, shown("two")) as other, pytest.raises(PermissionDeniedError, match="another client"):
            other.send_record(record_of(session, [9]))
        with using(server.socket) as trusted, pytest.raises(PermissionDeniedError, match="another client"):
            trusted.send_record(record_of(session, [9]))
        with using(server.grpc, shown("one")) as own:
            own.send_record(record_of(session, [9]))
    assert state_of(ledger, session.id) == (9, 0, False, True)


def test_each_worker_of_a_server_takes_the_records_of_the_others_sessions(policies: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    with running_server(policies, tmp_path, "--ledger", ledger, "--workers", "2") as server:
        for _ in range(8):
            await_forms(server.socket)
        over = [ended(server.socket) for _ in range(4)]
        with using(server.socket) as running, using(server.socket) as another:
            running.decided(1, 0, payload(1))
            running.report(Outcome())
            for sender in (running, another):
                # Each record comes by a connection of its own, to either worker.
                for _ in range(4):
                    with pytest.raises(UnavailableError, match="still runs"):
                        sender.send_record(record_of(running, [9]))
            for session in over:
                another.send_record(record_of(session, [9]))
                with LedgerReader(ledger) as reader:
                    assert reader.session(session.id).outcome == Outcome({"text": 128.0}, "ok")
    assert [state_of(ledger, session.id) for session in over] == [(9, 0, False, True)] * 4
    assert state_of(ledger, running.id)[0] == 1

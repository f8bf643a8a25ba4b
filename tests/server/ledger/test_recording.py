"""What a server with ``--ledger`` keeps, over every transport."""

import json
import socket
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from policybridge_bench.network import SIGNATURE
from policybridge_client import open_runner
from policybridge_client.connection import connect
from policybridge_client.grpc import GrpcConnection
from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError, UnsupportedError
from policybridge_serdes import (
    ElementType,
    Exploration,
    Outcome,
    PolicyReference,
    SessionOptions,
    Signature,
    TensorSpec,
    pack,
)
from policybridge_serdes.interactive import header_line
from policybridge_serdes.training_log import TrainingLogReader
from policybridge_server.ledger.query import Query, SessionRecord
from tests.conftest import ServerFactory
from tests.server.ledger.asking import ask, open_network, rows
from tests.server.ledger.conftest import Recording
from tests.server.ledger.test_export import refused, sessions
from tests.server.test_serve import refusal


def recorded(recording: Recording, session_id: str) -> SessionRecord:
    with recording.reader() as reader:
        return reader.session(session_id)


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Wait until it holds: for what the ledger keeps without being asked to."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_an_outcome_that_comes_with_the_end_is_answered_before_it_also_where_it_is_refused(
    recording: Recording,
) -> None:
    hello, both = b'{"policybridge":1,"policy":"network"}\n', b'{"outcome":{"values":{"text":1}}}\n{"end":true}\n'
    answers = []
    for header in (b"", header_line(SIGNATURE)):
        with closing(socket.socket(socket.AF_UNIX)) as peer:
            peer.connect(recording.server.socket.removeprefix("socket:"))
            peer.sendall(hello + header + both)
            answers.append(peer.makefile("rb").read().partition(b"\n")[2])
    assert answers[0].startswith(b"\1")
    assert b"the ledger holds no session" in answers[0]
    assert answers[1] == 2 * b'\0{"recorded":true}\n'


def test_every_decision_is_kept_as_it_was_made(recording: Recording, address: str) -> None:
    options = SessionOptions("main.c", {"o": "1"}, {"project": "größer"})
    session = open_network(address, options, "network@1")
    asked = rows(700)
    answers = ask(session, asked[:300])
    session.context("f")
    answers += ask(session, asked[300:])
    session.report(Outcome({"text": 128.5}, "ok"))
    with recording.reader() as reader:
        found = reader.session(session.id)
        (batch,) = reader.trajectory(found).batches
    assert found.policy == session.policy
    assert (found.labels, found.options) == ({"project": "größer"}, {"o": "1"})
    assert found.outcome == Outcome({"text": 128.5}, "ok")
    assert (found.decisions, found.lost, found.closed) == (700, 0, None)
    assert batch.signature == SIGNATURE
    assert batch.observations.tobytes() == b"".join(row.tobytes() for row in asked)
    assert batch.advices.tobytes() == answers
    assert batch.steps.tolist() == list(range(1, 701))
    assert batch.contexts.tolist() == ["main.c"] * 300 + ["f"] * 400 if "grpc" in address else True
    assert batch.contexts[300:].tolist() == ["f"] * 400
    assert np.isnan(batch.log_probabilities).all()
    assert (batch.nanoseconds > 0).all()
    session.close()


def test_decisions_are_answered_while_another_program_holds_the_ledger_locked(
    recording: Recording, address: str
) -> None:
    session = open_network(address)
    with closing(sqlite3.connect(recording.ledger, isolation_level=None, timeout=60)) as other:
        other.execute("BEGIN IMMEDIATE")
        answers = ask(session, rows(500))
        other.execute("ROLLBACK")
    session.report(Outcome({"text": 1}, "ok"))
    assert len(answers) == 500 * SIGNATURE.advice_layout.size
    assert recorded(recording, session.id).decisions == 500
    session.close()


def test_what_nobody_acknowledged_is_kept_within_seconds(recording: Recording, address: str) -> None:
    session = open_network(address)
    ask(session, rows(3))
    assert within(60, lambda: recorded_or_none(recording, session.id) == 3)
    session.close()
    assert within(60, lambda: recorded(recording, session.id).closed is not None)


def recorded_or_none(recording: Recording, session_id: str) -> int | None:
    with recording.reader() as reader:
        return next((found.decisions for found in reader.sessions(Query(session=session_id))), None)


def test_the_end_of_a_grpc_session_is_acknowledged_with_all_its_decisions(recording: Recording) -> None:
    session = open_network(recording.server.grpc)
    ask(session, rows(10))
    session.close()
    assert recorded(recording, session.id).decisions == 10


def test_an_outcome_may_come_later_and_from_another_connection_and_adds_to_the_first(
    recording: Recording, address: str
) -> None:
    session = open_network(address)
    ask(session, rows(5))
    session.report(Outcome({"text": 1, "seconds": 2}, "ok"))
    session.close()
    connect(address).report_outcome(session.id, Outcome({"text": 3, "cycles": 4}))
    assert recorded(recording, session.id).outcome == Outcome({"text": 3, "seconds": 2, "cycles": 4}, "ok")
    connect(address).report_outcome(session.id, Outcome(status="crash"))
    assert recorded(recording, session.id).outcome == Outcome({"text": 3, "seconds": 2, "cycles": 4}, "crash")


def test_a_session_goes_on_after_a_report_and_may_report_before_it_asks(recording: Recording, address: str) -> None:
    session = open_network(address)
    session.report(Outcome(status="begun"))
    ask(session, rows(2))
    session.report(Outcome(status="ok"))
    ask(session, rows(1))
    connect(address).report_outcome(session.id, Outcome({"x": 1}))
    found = recorded(recording, session.id)
    assert (found.decisions, found.outcome) == (3, Outcome({"x": 1}, "ok"))
    session.close()


def test_an_outcome_of_an_unknown_session_is_not_found(address: str) -> None:
    with pytest.raises(NotFoundError, match="the ledger holds no session 'nobody'"):
        connect(address).report_outcome("nobody", Outcome(status="ok"))


def test_without_a_ledger_an_outcome_is_unimplemented(policies: Path, server_factory: ServerFactory) -> None:
    server = server_factory(policies)
    for address in (server.socket, server.grpc):
        with pytest.raises(UnsupportedError, match="keeps no ledger"):
            connect(address).report_outcome("any", Outcome())
        session = open_network(address)
        ask(session, rows(1))
        with pytest.raises(UnsupportedError, match="keeps no ledger"):
            session.report(Outcome())
        with pytest.raises(PreconditionError, match="the session is over"):
            session.report(Outcome())
    with pytest.raises(UnsupportedError):
        connect(f"inprocess:{policies}").report_outcome("any", Outcome())


def test_numbers_that_are_none_are_refused_where_they_are_made() -> None:
    for values in ({"x": float("nan")}, {"x": float("inf")}, {"": 1.0}):
        with pytest.raises(InvalidError):
            Outcome(values)


def test_an_exploring_session_is_kept_with_its_log_probabilities(recording: Recording, address: str) -> None:
    signature = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("choice", ElementType.INT64))
    exploration = Exploration(seed=7, temperature=1.0, epsilon=0.5)
    session = connect(address).open(PolicyReference("scores"), signature, SessionOptions(exploration=exploration))
    told: list[float | None] = []
    for x in range(20):
        session.evaluate(pack(signature.features, {"x": x}))
        told.append(session.log_probability)
    session.report(Outcome())
    with recording.reader() as reader:
        found = reader.session(session.id)
        (batch,) = reader.trajectory(found).batches
    assert found.exploration == exploration
    assert batch.log_probabilities.astype(np.float32).tolist() == [np.float32(one) for one in told if one is not None]
    session.close()


def test_observations_and_advices_that_vary_are_kept(recording: Recording, address: str) -> None:
    names = TensorSpec("names", ElementType.STRING, (-1,))
    signature = Signature.of([names], TensorSpec("advice", ElementType.STRING, (-1,)))
    session = connect(address).open(PolicyReference("reverse"), signature, SessionOptions())
    asked = [["ü", ""], [], ["a", "b", "c"]]
    for texts in asked:
        session.evaluate(pack(signature.features, {"names": texts}))
    session.report(Outcome())
    with recording.reader() as reader:
        (batch,) = reader.trajectory(reader.session(session.id)).batches
    assert [held.tolist() for held in batch.observations["names"]] == asked
    assert [held.tolist() for held in batch.advices["advice"]] == [texts[::-1] for texts in asked]
    session.close()


def test_a_second_header_with_other_features_begins_a_second_batch_of_the_same_session(recording: Recording) -> None:
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(recording.server.socket.removeprefix("socket:"))
    lines = peer.makefile("rb")
    peer.sendall(b'{"policybridge":1,"policy":"sum"}\n')
    opened = json.loads(lines.readline())
    advice = TensorSpec("advice", ElementType.INT64)
    for width in (1, 2):
        signature = Signature.of([TensorSpec("x", ElementType.INT64, (width,))], advice)
        payload = np.arange(width, dtype="<i8").tobytes()
        peer.sendall(header_line(signature) + b'{"context":"c%d"}\n{"observation":0}\n%b\n' % (width, payload))
        assert lines.read(9)[0] == 0
    peer.sendall(b'{"outcome":{"values":{"text":7},"status":"ok"}}\n')
    assert lines.readline() == b'\0{"recorded":true}\n'
    with recording.reader() as reader:
        batches = reader.trajectory(reader.session(opened["session"])).batches
    assert [batch.signature.features.size for batch in batches] == [8, 16]
    assert [batch.steps.tolist() for batch in batches] == [[1], [2]]
    assert [batch.contexts.tolist() for batch in batches] == [["c1"], ["c2"]]
    lines.close()
    peer.close()


def test_the_decisions_of_one_kind_are_exported_and_each_kinds_advices_are_counted(
    recording: Recording, tmp_path: Path
) -> None:
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(recording.server.socket.removeprefix("socket:"))
    lines = peer.makefile("rb")
    peer.sendall(b'{"policybridge":1,"policy":"sum","labels":{"kinds":"two"}}\n')
    session = json.loads(lines.readline())["session"]
    for kind, width in (("inlining_decision", 1), ("pass_choice", 2), ("inlining_decision", 1)):
        signature = Signature.of([TensorSpec("x", ElementType.INT64, (width,))], TensorSpec(kind, ElementType.INT64))
        payload = np.full(width, 3, "<i8").tobytes()
        peer.sendall(header_line(signature) + b'{"observation":0}\n%b\n' % payload)
        assert lines.read(9)[0] == 0
    peer.sendall(b'{"outcome":{"values":{"text":7},"status":"ok"}}\n')
    assert lines.readline() == b'\0{"recorded":true}\n'
    lines.close()
    peer.close()
    told = json.loads(sessions(recording, "show", session, "--json"))
    assert told["advices"] == {"inlining_decision": {"[3]": 2}, "pass_choice": {"[6]": 1}}
    target = tmp_path / "x.log"
    for kind, count, width in (("inlining_decision", 2, 1), ("pass_choice", 1, 2)):
        said = sessions(recording, "export", "--label", "kinds=two", "--kind", kind, "--to", target)
        assert said.startswith(f"{count} decisions")
        with target.open("rb") as file:
            assert TrainingLogReader(file).header.features.specs[0].shape == (width,)
    assert "choose them by policy, version, label or kind" in refused(
        recording, "export", "--label", "kinds=two", "--to", target
    )


def test_a_decision_without_a_session_is_not_recorded(recording: Recording) -> None:
    connection = connect(recording.server.grpc)
    assert isinstance(connection, GrpcConnection)
    with recording.reader() as reader:
        before = sum(1 for _ in reader.sessions())
        connection.evaluate_once(PolicyReference("network"), SIGNATURE.features, rows(1)[0])
        session = open_network(recording.server.grpc)
        session.report(Outcome())
        assert sum(1 for _ in reader.sessions()) == before + 1
    session.close()


def test_a_model_runner_reports_in_words(recording: Recording, address: str) -> None:
    x, advice = TensorSpec("x", ElementType.INT64, (2,)), TensorSpec("advice", ElementType.INT64)
    with open_runner(address, policy="sum", features=[x], advice=advice) as runner:
        runner["x"][:] = 3
        assert runner.evaluate() == 6
        runner.report("ok", cycles=1e6)
    assert recorded(recording, runner.session_id).outcome == Outcome({"cycles": 1e6}, "ok")


def test_a_second_server_on_the_same_ledger_is_refused(recording: Recording, policies: Path, tmp_path: Path) -> None:
    said = refusal("--repository", policies, "--socket", tmp_path / "s", "--ledger", recording.ledger)
    assert f"another server writes the ledger {recording.ledger}" in said


def test_a_ledger_that_cannot_be_one_is_refused(policies: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database, and longer than the header of one" * 10)
    given = ["--repository", policies, "--socket", tmp_path / "s", "--ledger"]
    assert "it is no SQLite file" in refusal(*given, tmp_path / "text")
    assert "cannot be written" in refusal(*given, tmp_path / "none" / "ledger.db")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"policybridge":1,"report":"x"}', "missing required field `outcome`"),
        (b'{"policybridge":1,"report":"x","outcome":{"values":{"a":"b"}}}', "Expected `float`"),
        (b'{"policybridge":1,"report":"x","outcome":{},"policy":"p"}', "unknown field `policy`"),
        (b'{"policybridge":1,"report":"x","outcome":{"values":{"":1}}}', "an outcome's name"),
        (b'{"policybridge":1,"report":"x","outcome":{}}', "the ledger holds no session"),
    ],
)
def test_a_report_on_the_socket_that_is_wrong_is_an_error_line_and_the_end(
    recording: Recording, line: bytes, message: str
) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(recording.server.socket.removeprefix("socket:"))
        peer.sendall(line + b"\n")
        with peer.makefile("rb") as answer:
            assert message in json.loads(answer.readline())["error"]["message"]
            assert answer.read() == b""

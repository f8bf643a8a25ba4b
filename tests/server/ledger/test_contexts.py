"""Outcomes by context: what became of each function."""

import sqlite3
from contextlib import closing
from pathlib import Path

import grpc
import numpy as np
import pytest

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_client.connection import connect
from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_serdes import Outcome
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.records import Reported
from policybridge_server.ledger.sqlite import SqliteStore
from tests.server.ledger.asking import ask, open_network, rows
from tests.server.ledger.conftest import Recording
from tests.server.ledger.test_bounds import pruned, session

_MANY = {f"_ZN4llvm6cl{n:05}3fooERKSt6vectorIiE": {"text": float(n)} for n in range(10_000)}


def table_size(ledger: Path) -> int:
    with closing(sqlite3.connect(ledger)) as database:
        (size,) = database.execute("SELECT coalesce(sum(length(outcomes)), 0) FROM context_outcomes").fetchone()
        return int(size)


def test_thousands_of_functions_of_a_report_come_back_by_their_contexts(recording: Recording, address: str) -> None:
    opened = open_network(address)
    ask(opened, rows(3))
    before = table_size(recording.ledger)
    opened.report(Outcome({"text": 7}, "ok", _MANY))
    assert table_size(recording.ledger) - before < 150_000
    more = {"größer, with odd\n bytes": {"exec": -0.5}, next(iter(_MANY)): {"exec": 1.0, "text": 2.0}, "": {}}
    connect(address).report_outcome(opened.id, Outcome({}, "", more))
    with recording.reader() as reader:
        found = reader.session(opened.id)
        outcomes = reader.context_outcomes(found)
    assert found.outcome == Outcome({"text": 7}, "ok"), "listing sessions reads none of them"
    assert outcomes == {**_MANY, **more}
    opened.close()


def test_what_no_report_may_hold_is_refused(recording: Recording, address: str) -> None:
    opened = open_network(address)
    ask(opened, rows(1))
    too_many = {f"f{n}": dict.fromkeys("abcd", 1.0) for n in range(16_400)}
    with pytest.raises(TooLargeError, match=r"65600 values by context.*--max-context-values|line|fields"):
        connect(address).report_outcome(opened.id, Outcome(contexts=too_many))
    wrongs: list[dict[str, dict[str, float]]] = [{"f": {"text": float("nan")}}, {"f": {"": 1.0}}, {"\udcff": {}}]
    for wrong in wrongs:
        with pytest.raises(InvalidError):
            Outcome(contexts=wrong)
    opened.report(Outcome())
    with recording.reader() as reader:
        assert reader.context_outcomes(reader.session(opened.id)) == {}
    opened.close()


def test_a_table_whose_columns_do_not_fit_is_refused(recording: Recording) -> None:
    outcome = pb.Outcome()
    outcome.contexts.contexts.extend(["f", "g"])
    outcome.contexts.columns["text"].values.append(1.0)
    address = recording.server.grpc.removeprefix("grpc:")
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as raised:
        PolicyServiceStub(channel).ReportOutcome(pb.ReportOutcomeRequest(session_id="s", outcome=outcome))
    assert "the column 'text' has 1 numbers for 2 contexts" in (raised.value.details() or "")


def test_they_go_with_their_session_and_count_in_the_ledgers_bytes(tmp_path: Path) -> None:
    ledger, noise = tmp_path / "ledger.db", np.random.default_rng(1)
    store = SqliteStore(ledger, Bounds(bytes=2 << 20))
    for n in range(40):
        contexts = {f"{noise.integers(1 << 62)}": {"text": float(noise.random())} for _ in range(3000)}
        store.write([*session(f"s{n}", n), Reported(f"s{n}", Outcome(contexts=contexts), n)])
    pruned(store)
    store.close()
    with LedgerReader(ledger) as reader:
        kept = list(reader.sessions())
        assert 2 < len(kept) < 20
        assert all(len(reader.context_outcomes(each)) == 3000 for each in kept)
    with closing(sqlite3.connect(ledger)) as database:
        assert database.execute("SELECT count(*) FROM context_outcomes").fetchone() == (len(kept),)


def test_a_ledger_of_an_older_server_has_none(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    store = SqliteStore(ledger, Bounds())
    store.write(session("s", 1))
    store.close()
    with closing(sqlite3.connect(ledger)) as database:
        database.execute("DROP TABLE context_outcomes")
    with LedgerReader(ledger) as reader:
        assert reader.context_outcomes(reader.session("s")) == {}
    SqliteStore(ledger, Bounds()).close()

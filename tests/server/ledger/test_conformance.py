"""What every kind of ledger owes: the same records give the same sessions, decisions, exports and summaries."""

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policybridge_bench.network import SIGNATURE
from policybridge_core.errors import (
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    TooLargeError,
    UnavailableError,
    UnknownError,
)
from policybridge_serdes import ElementType, Exploration, Outcome, PolicyVersion, Signature, TensorSpec, pack
from policybridge_server.backends.contract import SessionView
from policybridge_server.ledger.contract import Bounds, Resuming, Store, load_ledger
from policybridge_server.ledger.export import Score, export_log
from policybridge_server.ledger.place import parse_place
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.records import (
    Begun,
    Bulk,
    BulkPart,
    Ended,
    Labelled,
    Lost,
    Record,
    Reported,
    Resumed,
    Segment,
    Step,
)
from policybridge_server.ledger.summary import open_summary
from policybridge_server.ledger.trajectory import DecisionBatch
from policybridge_server.repository.rollout import Rollout, RolloutStep
from tests.postgres_soak.cluster import Postgres
from tests.postgresql import installed_postgres, postgres
from tests.server.ledger.asking import rows
from tests.server.ledger.test_bounds import ADVICE, session

__all__ = ["installed_postgres", "postgres"]

ODD = "a\0b\x01c\x010 größer 'quoted' \"%s?\" \U0010ffff"
ODDER = ODD.replace("\0", "")
"""SQLite finds no label that has a NUL."""

NAMES = Signature.of([TensorSpec("names", ElementType.STRING, (-1,))], TensorSpec("advice", ElementType.INT64))
KINDS = ["sqlite", "postgresql", "spool"]


@dataclass
class Kept:
    """A ledger of one kind."""

    place: str
    spool: Path | None = None

    def store(self, **bounds: Any) -> Store:
        place = parse_place(self.place)
        return load_ledger(place).open_store(place, Bounds(spool=self.spool, **bounds))

    def write(self, *records: Record) -> list[Any]:
        with closing(self.store()) as store:
            refused = store.write(records)
        return [refused.get(position) for position in range(len(records))]


Keep = Callable[[str], Kept]


@pytest.fixture
def keep(request: pytest.FixtureRequest, tmp_path: Path) -> Keep:
    """Make an empty ledger of a kind."""

    def kept(kind: str) -> Kept:
        if kind == "sqlite":
            return Kept(str(tmp_path / "ledger.db"))
        made: Postgres = request.getfixturevalue("postgres")
        return Kept(made.create(), tmp_path / "spool" if kind == "spool" else None)

    return kept


@pytest.fixture(params=KINDS)
def kept(request: pytest.FixtureRequest, keep: Keep) -> Kept:
    return keep(request.param)


def everything() -> list[Record]:
    """Give records of every form, with odd text wherever clients may send text."""
    view = SessionView(
        "s-odd",
        PolicyVersion("network", 2, "sha256:1"),
        ODD,
        labels={ODD: ODD, "b": "1"},
        options={"o": ODD},
        file="a.c",
        alias=ODD,
        reporter="one",
    )
    exploring = SessionView("s-explore", PolicyVersion("other", 1, ""), "f", exploration=Exploration(7, 0.5, 0.25))
    varying = [(pack(NAMES.features, {"names": ["ü", "", ODD]}), np.zeros(1, NAMES.advice_layout.dtype), -0.5, 9)]
    parts = [BulkPart(b"".join(row.tobytes() for row in rows(n)), n * ADVICE.tobytes(), n, 6 + n) for n in (2, 1)]
    bulk = Bulk(parts)
    step = RolloutStep("network", "begun", Rollout(version=2, base=1, alias="latest", share=0.5, reason=ODD), 5.0)
    contexts = {ODD: {"text": 1.0}, "g": {"text": 2.0, ODD: 3.0}}
    return [
        *session("s-plain", 100.0),
        Begun(view, 50.0),
        Begun(exploring, 60.0),
        Segment("s-odd", 1, SIGNATURE, ODD, [(row, ADVICE, None, 5) for row in rows(3)], 1),
        Segment("s-odd", 4, SIGNATURE, "g", bulk, 1),
        Segment("s-explore", 1, NAMES, "f", varying, 1),
        Segment("s-explore", 2, SIGNATURE, "g", [(rows(1)[0].tobytes(), ADVICE, -1.5, 6)], 1),
        Lost("s-explore", 3),
        Labelled("s-odd", {ODD: ODD, "c": ODD}),
        Reported("s-odd", Outcome({"text": 1.0, ODD: 2.0}, "ok", contexts), 70.0),
        Reported("s-odd", Outcome({"text": 3.0}, "", {"g": {"text": 9.0}}), 71.0, "another"),
        Reported("s-odd", None, 72.0),
        Ended("s-odd", 73.0, 2),
        Step(step),
    ]


def plain(batch: DecisionBatch) -> list[Any]:
    fixed = batch.signature.features.fixed
    observed = batch.observations.tobytes() if fixed else str(batch.observations.tolist())
    columns = batch.steps, batch.contexts, batch.nanoseconds, batch.session
    chances = str(batch.log_probabilities.tolist())
    return [batch.signature, observed, batch.advices.tobytes(), chances, *(column.tolist() for column in columns)]


def told(kept: Kept, target: Path) -> dict[str, Any]:
    """Give all that readers see of a ledger, but the numbers of sessions."""
    with LedgerReader(kept.place) as reader:
        found = list(reader.sessions())
        decisions = [plain(batch) for each in found for batch in reader.trajectory(each).batches]
        contexts = [reader.context_outcomes(each) for each in found]
        export_log(reader, Query(policy="network"), target, Score("text", 0.0))
    with closing(open_summary(kept.place)) as summary:
        newest = [(each.id, file) for each, file in summary.newest(Query(), None, 10)]
        totals, names = summary.totals(), summary.outcome_names("network", 2, 5)
        rollout = Rollout(version=2, base=1, alias=ODD, share=0.5)
        values = sorted(
            (value.version, value.value, sorted(value.reporters))
            for name in ("text", "failed")
            for value in summary.values("network", rollout, name).values
        )
        parts = [len(each) for each in summary.decisions(found[0], 200, 10)]
        steps = summary.steps(None, 5)
        assert summary.size() > 0
    sessions = [{**each.to_json(), "number": None} for each in found]
    return {
        "sessions": sessions,
        "decisions": decisions,
        "contexts": contexts,
        "log": target.read_bytes(),
        "newest": newest,
        "totals": totals,
        "names": names,
        "values": values,
        "parts": parts,
        "steps": steps,
    }


@pytest.mark.parametrize("kind", KINDS[1:])
def test_every_kind_of_ledger_gives_back_what_the_file_gives(keep: Keep, tmp_path: Path, kind: str) -> None:
    files = [SessionView(f"p{n}", PolicyVersion("network", 1 + n % 2, ""), "", file=f"f{n // 2}") for n in range(6)]
    paired: list[Record] = [
        record
        for n, view in enumerate(files)
        for record in (Begun(view, 200.0 + n), Reported(view.id, Outcome({"x": n}, "ok" if n else "crash"), 300.0))
    ]
    answers = []
    for each in (keep("sqlite"), keep(kind)):
        with closing(each.store()) as store:
            first = store.write(everything())
            second = store.write([*paired, Reported("s-plain", Outcome({"y": 4.0}), 400.0), Ended("s-explore", 80.0)])
        answers.append([str(dict(first)), str(dict(second)), told(each, tmp_path / "log")])
    assert answers[0] == answers[1]
    assert "3 decisions of the session are lost" in answers[0][1]


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("seed", range(4))
def test_it_makes_no_difference_which_records_are_written_together(
    keep: Keep, tmp_path: Path, kind: str, seed: int
) -> None:
    drawn = random.Random(seed)
    records = everything()
    cuts = sorted(drawn.sample(range(1, len(records)), k=seed and drawn.randrange(1, len(records))))
    answers: list[tuple[list[tuple[int, str]], dict[str, Any]]] = []
    for ends in ([*range(1, len(records)), None], [*cuts, None]):
        each = Kept(str(tmp_path / f"{len(answers)}.db")) if kind == "sqlite" else keep(kind)
        refused, begin = list[tuple[int, str]](), 0
        with closing(each.store()) as store:
            for end in ends:
                told_so = store.write(records[begin:end])
                refused += [(begin + position, str(error)) for position, error in told_so.items()]
                begin = end or 0
        answers.append((sorted(refused), told(each, tmp_path / "log")))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (Query(), "abc"),
        (Query(policy="p"), "ab"),
        (Query(versions=(2, 3)), "bc"),
        (Query(since=2.0, until=3.0), "b"),
        (Query(labels={ODDER: ODDER}), "a"),
        (Query(labels={ODDER: "x' OR TRUE --"}), ""),
        (Query(status=ODD), "b"),
        (Query(status="closed"), "c"),
        (Query(status="open"), "a"),
        (Query(status="interrupted"), ""),
        (Query(session="b-"), "b"),
        (Query(session=""), "abc"),
    ],
    ids=str,
)
def test_a_query_narrows_every_kind_by_each_of_its_conditions(three: Kept, query: Query, wanted: str) -> None:
    with LedgerReader(three.place) as reader:
        assert "".join(each.id[0] for each in reader.sessions(query)) == wanted


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Give a ledger of three sessions."""
    kind = request.param
    made = tmp_path_factory.mktemp("three") / "ledger.db"
    kept = Kept(str(made) if kind == "sqlite" else request.getfixturevalue("postgres").create())
    views = [
        SessionView("a-1", PolicyVersion("p", 1, ""), labels={ODDER: ODDER}),
        SessionView("b-1", PolicyVersion("p", 2, ""), labels={"n": "\0"}),
        SessionView("c-1", PolicyVersion("q", 3, "")),
    ]
    begun = [Begun(view, 1.0 + n) for n, view in enumerate(views)]
    kept.write(*begun, Ended("c-1", 8.0), Reported("b-1", Outcome(status=ODD), 9.0))
    return kept


def test_a_record_that_cannot_be_kept_costs_no_other_one(kept: Kept) -> None:
    again = [*session("one", 1.0), *session("one", 2.0)[:1], *session("two", 3.0)]
    refused = kept.write(*again, Reported("nobody\0", Outcome(), 4.0))
    assert [type(each) for each in refused if each] == [UnknownError, NotFoundError]
    assert refused.index(refused[4]) == 4
    with LedgerReader(kept.place) as reader:
        assert [(each.id, each.decisions) for each in reader.sessions()] == [("one", 256), ("two", 256)]


@pytest.mark.parametrize("together", [True, False])
def test_labels_that_change_replace_those_of_the_beginning(kept: Kept, together: bool) -> None:
    records = session("changed", 1.0)
    records.insert(1, Labelled("changed", {ODD: "1"}))
    for part in [records] if together else [records[:1], records[1:2], records[2:]]:
        assert kept.write(*part) == [None] * len(part)
    with LedgerReader(kept.place) as reader:
        (found,) = reader.sessions()
    assert found.labels == {ODD: "1"}


def test_the_order_is_that_of_beginning_and_lost_decisions_are_told(kept: Kept) -> None:
    with closing(kept.store()) as store:
        for n, name in enumerate(["c", "a", "b"]):
            store.write(session(name, 9.0 - n))
        (error,) = store.write([Lost("a", 2), Reported("a", Outcome({"x": 5.0}), 1.0)]).values()
        assert isinstance(error, TooLargeError)
        with LedgerReader(kept.place) as reader:
            found = list(reader.sessions())
            assert [each.id for each in found] == ["c", "a", "b"]
            assert [each.lost for each in found] == [0, 2, 0]
            assert sum(len(batch) for batch in reader.batches(size=300)) == 768


def test_what_a_killed_server_left_open_is_over_when_its_ledger_is_opened_again(kept: Kept) -> None:
    store = kept.store()
    store.write([*session("open", 1.0, over=False), *session("over", 1.0)])
    store.close()
    kept.store().close()
    with LedgerReader(kept.place) as reader:
        states = {each.id: (each.interrupted, each.closed is not None) for each in reader.sessions()}
    # Without a spool it is not known which of many servers is gone.
    assert states["open"] == (
        (False, False) if kept.place.startswith("postgresql") and not kept.spool else (True, True)
    )
    assert states["over"] == (False, True)


def test_an_empty_place_is_told(keep: Keep) -> None:
    for kind in KINDS[:2]:
        with pytest.raises(UnavailableError, match="there is no ledger"):
            LedgerReader(keep(kind).place)


def test_a_session_that_a_killed_server_left_goes_on_where_the_ledger_ends(kept: Kept) -> None:
    store = kept.store()
    begun, *segments = session("open", 1.0, over=False)
    assert isinstance(begun, Begun)
    store.write([begun, *segments])
    assert isinstance(store, Resuming)
    with pytest.raises(UnavailableError, match="still runs"):
        store.resume(Resumed(begun.session, 2.0))
    store.write([Ended("open", 2.0, interrupted=True)])
    store.close()
    with closing(kept.store()) as again:
        assert isinstance(again, Resuming)
        held = again.resume(Resumed(begun.session, 3.0))
        assert held == sum(len(each.decisions) for each in segments if isinstance(each, Segment))
        again.write([Segment("open", held + 1, SIGNATURE, "f", [(row, ADVICE, None, 5) for row in rows(3)], 1)])
        assert again.write([Ended("open", 4.0)]) == {}
    with LedgerReader(kept.place) as reader:
        (found,) = reader.sessions()
        assert (found.decisions, found.interrupted, found.closed) == (held + 3, False, 4.0)
        assert sum(len(batch) for batch in reader.trajectory(found).batches) == held + 3


def test_a_session_goes_on_by_the_version_and_the_client_that_it_began_with(kept: Kept) -> None:
    view = SessionView("open", PolicyVersion("network", 2, "sha256:1"), reporter="one")
    with closing(kept.store()) as store:
        assert isinstance(store, Resuming)
        assert store.resume(Resumed(view, 1.0)) == 0
        store.write([Ended("open", 2.0, interrupted=True)])
        for wrong, error in [
            (replace(view, reporter=""), PermissionDeniedError),
            (replace(view, reporter="two"), PermissionDeniedError),
            (replace(view, policy=PolicyVersion("network", 2, "sha256:2")), PreconditionError),
        ]:
            with pytest.raises(error):
                store.resume(Resumed(wrong, 3.0))
        assert store.resume(Resumed(view, 3.0)) == 0
        store.write([Lost("open", 2), Ended("open", 4.0)])
        with pytest.raises(TooLargeError):
            store.resume(Resumed(view, 5.0))

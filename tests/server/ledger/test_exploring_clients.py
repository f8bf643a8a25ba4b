"""Sessions that explore, and whose decisions the client draws by the policy's form."""

import struct
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, FormSession
from policybridge_client.local import LocalSession, decide_here
from policybridge_client.record import Record
from policybridge_client.runner import open_runner
from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_serdes import Exploration, Outcome, PolicyReference, SessionOptions, Values
from policybridge_serdes.interactive import decided_lines, header_line
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch
from tests.conftest import RunningServer, running_server
from tests.server.ledger.asking import await_forms_of
from tests.server.ledger.exploring import EXPLORATIONS, rows_of, signature_of, write_exploring
from tests.server.ledger.test_writer import within

METRIC = "policybridge_client_decisions_total"

ONE = signature_of("here")

Drawn = list[tuple[bytes, float | None]]
"""Advices and log-probabilities."""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="pb-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with serving(folder) as running:
        yield running


@pytest.fixture
def counting() -> Iterator[RunningServer]:
    """Give a server of its own: a decision of an earlier session may be made again, and counted, much later."""
    with TemporaryDirectory(prefix="pb-") as name, serving(Path(name)) as running:
        yield running


@contextmanager
def serving(folder: Path) -> Iterator[RunningServer]:
    write_exploring(folder / "policies")
    with running_server(
        folder / "policies", folder, "--ledger", folder / "ledger.db", "--http", "127.0.0.1:0"
    ) as running:
        await_forms_of(running.socket, "exploring-one", ONE)
        yield running


@pytest.fixture(params=["socket", "grpc"])
def address(request: pytest.FixtureRequest, server: RunningServer) -> str:
    given: str = getattr(server, request.param)
    return given


def opened(address: str, exploration: Exploration | None, *, evaluates: bool = True) -> ClientSession:
    options = SessionOptions("main.c", exploration=exploration, evaluates=evaluates)
    return connect(address).open(PolicyReference("exploring-one"), ONE, options)


def local(address: str, exploration: Exploration) -> LocalSession:
    session = decide_here(opened(address, exploration), ONE, exploration, asks=False)
    assert isinstance(session, LocalSession)
    return session


def forms(address: str, exploration: Exploration | None = EXPLORATIONS[0]) -> FormSession:
    session = opened(address, exploration)
    assert isinstance(session, FormSession)
    return session


def asked(session: ClientSession, observations: list[Values]) -> Drawn:
    return [(session.evaluate(row).tobytes(), session.log_probability) for row in observations]


def recorded(folder: Path, session: str) -> list[DecisionBatch]:
    with LedgerReader(folder / "ledger.db") as reader:
        return list(reader.trajectory(reader.session(session)).batches)


@pytest.mark.parametrize("exploration", EXPLORATIONS)
def test_the_client_draws_what_the_server_draws_and_it_is_kept_alike(
    folder: Path, address: str, exploration: Exploration
) -> None:
    rows, made, ids = rows_of("here", 300), [], []
    for session in (opened(address, exploration, evaluates=False), local(address, exploration)):
        with session:
            drawn = asked(session, rows[:70])
            session.context("f")
            made.append(drawn + asked(session, rows[70:]))
            session.report(Outcome({"text": 1.0}))
            ids.append(session.id)
    assert made[0] == made[1]
    assert len({advice for advice, _ in made[0]}) == 3
    (there,), (here,) = (recorded(folder, each) for each in ids)
    assert here.log_probabilities.tobytes() == there.log_probabilities.tobytes()
    assert here.log_probabilities.tolist() == [chance for _, chance in made[0]]
    assert here.advices.tobytes() == there.advices.tobytes()
    assert here.observations.tobytes() == there.observations.tobytes()
    assert here.contexts.tolist() == there.contexts.tolist()


def test_single_decisions_that_the_server_draws_in_between_count_alike(folder: Path, address: str) -> None:
    rows = rows_of("here", 30)
    with opened(address, EXPLORATIONS[0], evaluates=False) as session:
        expected = asked(session, rows)
    with closing(forms(address)) as session:
        made = expected[:10]
        session.decided(10, 0, payload(rows[:10], made))
        made += asked(session, rows[10:12])
        session.decided(8, 0, payload(rows[12:20], expected[12:20]))
        made += expected[12:20] + asked(session, rows[20:])
        session.report(Outcome())
    assert made == expected
    (batch,) = recorded(folder, session.id)
    assert batch.log_probabilities.tolist() == [chance for _, chance in expected]


def payload(rows: list[Values], drawn: Sequence[tuple[bytes, float | None]]) -> bytes:
    chances = struct.pack(f"<{len(drawn)}f", *(chance for _, chance in drawn))
    return b"".join((*(row.tobytes() for row in rows), *(advice for advice, _ in drawn), chances))


@pytest.mark.parametrize("chance", [np.nan, 0.5, 1e-45, np.inf, -np.inf])
def test_what_is_no_logarithm_of_a_probability_ends_the_session(address: str, chance: float) -> None:
    with closing(forms(address)) as session:
        session.decided(2, 0, payload(rows_of("here", 2), [(bytes(8), -0.5), (bytes(8), chance)]))
        with pytest.raises(InvalidError, match="finite and 0 at most"):
            session.report(Outcome())


def test_chances_come_with_exploration_and_with_nothing_else(address: str) -> None:
    rows = rows_of("here", 2)
    observations = b"".join(row.tobytes() for row in rows)
    with closing(forms(address)) as session:
        session._explores = False  # type: ignore[attr-defined]
        session.decided(2, 0, observations + bytes(16))
        with pytest.raises(InvalidError, match="come with the logarithms"):
            session.report(Outcome())
    with closing(forms(address, None)) as session:
        session._explores = True  # type: ignore[attr-defined]
        session.decided(2, 0, observations + bytes(16) + bytes(8))
        with pytest.raises(InvalidError, match="come without the logarithms"):
            session.report(Outcome())


@pytest.mark.parametrize(("off", "differing"), [(0.0, 0), (1 / 32, 1)])
def test_a_draw_with_another_log_probability_is_counted_and_one_that_agrees_is_not(
    counting: RunningServer, off: float, differing: int
) -> None:
    rows = rows_of("here", 64)
    with opened(counting.socket, EXPLORATIONS[1], evaluates=False) as session:
        drawn = [(advice, (chance or 0) - off) for advice, chance in asked(session, rows)]
    with closing(forms(counting.socket, EXPLORATIONS[1])) as session:
        session.decided(64, 0, payload(rows, drawn))
        session.report(Outcome())
    assert within(60, lambda: counted(counting, "checked") == 1)
    assert counted(counting, "differing") == differing


def test_a_record_without_the_draws_that_the_server_made_differs_in_nothing(counting: RunningServer) -> None:
    rows = rows_of("here", 90)
    with opened(counting.socket, EXPLORATIONS[1], evaluates=False) as session:
        drawn = asked(session, rows)
    with closing(forms(counting.socket, EXPLORATIONS[1])) as session:
        record = Record(f"{9:032x}", session.policy, session.asked, session.options)
        record.note(header_line(ONE))
        # The first 20 were asked for, and are not in the record.
        record.add(decided_lines(70, 0, payload(rows[20:], drawn[20:]), chances=True))
        session.send_record(record.whole())
    # The decision that the server draws of the next session is made again no sooner.
    with closing(forms(counting.socket, EXPLORATIONS[1])) as session:
        session.decided(64, 0, payload(rows[:64], drawn[:64]))
        session.report(Outcome())
    assert within(60, lambda: counted(counting, "checked") > 0)
    assert counted(counting, "differing") == 0


def counted(server: RunningServer, result: str) -> int:
    """Give how many decisions of clients have this result so far."""
    http = next(each for each in server.others if each.startswith("http:")).replace("http:", "http://")
    text = urllib.request.urlopen(f"{http}/metrics", timeout=60).read().decode()
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    found = [each for each in samples if each.name == METRIC and each.labels["result"] == result]
    return sum(int(each.value) for each in found)


def test_half_the_chances_are_no_report(server: RunningServer) -> None:
    with closing(forms(server.grpc)) as session:
        session.decided(2, 0, payload(rows_of("here", 2), [(bytes(8), -0.5), (bytes(8), -0.5)])[:-4])
        with pytest.raises(InvalidError, match="4 for each chance"):
            session.report(Outcome())


def test_a_policy_without_a_form_is_asked_by_auto_and_refused_by_here(server: RunningServer) -> None:
    signature = signature_of("there")
    given = {"policy": "exploring", "features": signature.features.specs, "advice": signature.advice}
    with open_runner(server.socket, **given, evaluate="auto") as runner:  # type: ignore[arg-type]
        assert runner.evaluate() in (0, 1)
    with pytest.raises(PreconditionError, match="exploring@1 has no portable form that decides on there"):
        open_runner(server.socket, **given, evaluate="here")  # type: ignore[arg-type]
    explored = Exploration(seed=1, epsilon=0.5)
    given = {"policy": "exploring-one", "features": ONE.features.specs, "advice": ONE.advice, "exploration": explored}
    with open_runner(server.socket, **given, evaluate="here") as runner:  # type: ignore[arg-type]
        runner.evaluate()
        assert runner.log_probability is not None

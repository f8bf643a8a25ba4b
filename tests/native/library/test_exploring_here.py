"""Sessions of the C++ library that explore, drawn by the client as by the server."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_core.errors import PreconditionError
from policybridge_serdes import (
    ElementType,
    Exploration,
    Outcome,
    PolicyReference,
    SessionOptions,
    Signature,
    TensorSpec,
)
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch
from tests.conftest import RunningServer, running_server
from tests.native.clients import Connect, NativeSession, programs
from tests.native.conftest import Target
from tests.native.library.test_client import KINDS, Kind
from tests.server.ledger.asking import await_forms_of
from tests.server.ledger.exploring import EXPLORATIONS, rows_of, signature_of, write_exploring

THERE, AUTO, HERE = "place there", "place auto", "place here"

POLICY = PolicyReference("exploring")

TURNS = (("here", "main.c", 40), ("there", "f", 3), ("also_here", "f", 50), ("here", "g", 1100), ("there", "g", 2))
"""Kinds, contexts and numbers of decisions, one after the other in one session; ``there`` has no portable form."""


@pytest.fixture(params=["cpp-socket", "cpp-socket-sanitized", "cpp-grpc"], scope="module")
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="pb-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    if not (folder / "policies").exists():
        write_exploring(folder / "policies")
    with running_server(folder / "policies", folder, "--ledger", folder / "ledger.db") as running:
        await_forms_of(running.socket, "exploring", signature_of("here"))
        yield running


@pytest.fixture
def connect(native: Target, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with programs(kind.program(native)) as made:
        yield made


def opened(connect: Connect, address: str, exploration: Exploration, place: str, first: str = "here") -> NativeSession:
    options = SessionOptions("main.c", exploration=exploration)
    return connect(address).open(POLICY, signature_of(first), options, "several_kinds", place)


def drawn_in(session: NativeSession) -> list[tuple[bytes, float | None]]:
    """Give the advices and log-probabilities of all turns."""
    made: list[tuple[bytes, float | None]] = []
    for kind, context, count in TURNS:
        session.bind(POLICY, signature_of(kind))
        session.context(context)
        made += [(session.evaluate(row).tobytes(), session.log_probability) for row in rows_of(kind, count)]
    session.report(Outcome({"text": 1.0}))
    return made


def recorded(folder: Path, session: str) -> list[DecisionBatch]:
    with LedgerReader(folder / "ledger.db") as reader:
        return list(reader.trajectory(reader.session(session)).batches)


@pytest.mark.parametrize("exploration", EXPLORATIONS)
def test_decisions_of_several_kinds_and_contexts_are_drawn_as_the_server_draws_them(
    connect: Connect, kind: Kind, folder: Path, server: RunningServer, exploration: Exploration
) -> None:
    sessions = [opened(connect, kind.address(server), exploration, place) for place in (THERE, AUTO)]
    made = [drawn_in(session) for session in sessions]
    assert made[0] == made[1]
    there, here = (recorded(folder, session.id) for session in sessions)
    assert len(there) == len(here)
    for asked, reported in zip(there, here, strict=True):
        assert reported.signature == asked.signature
        assert reported.contexts.tolist() == asked.contexts.tolist()
        assert reported.observations.tobytes() == asked.observations.tobytes()
        assert reported.advices.tobytes() == asked.advices.tobytes()
        assert reported.log_probabilities.tobytes() == asked.log_probabilities.tobytes()


def test_where_no_form_decides_a_session_that_explores_is_refused_by_here(
    connect: Connect, kind: Kind, server: RunningServer
) -> None:
    with pytest.raises(PreconditionError, match="exploring@1 has no portable form that decides on there"):
        opened(connect, kind.address(server), EXPLORATIONS[0], HERE, "there")


def test_a_session_of_several_kinds_may_open_with_one_that_the_policy_does_not_decide(
    connect: Connect, kind: Kind, server: RunningServer
) -> None:
    other = Signature(signature_of("here").features, TensorSpec("another", ElementType.INT64, (1,)))
    options = SessionOptions("main.c", exploration=EXPLORATIONS[0])
    session = connect(kind.address(server)).open(POLICY, other, options, "several_kinds", HERE)
    session.bind(POLICY, signature_of("here"))
    assert session.evaluate(rows_of("here", 1)[0]).nbytes == 8

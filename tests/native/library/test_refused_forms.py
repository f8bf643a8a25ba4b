"""Forms that the C++ library refuses: the server is asked, and the user hears nothing."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_bench.network import SIGNATURE
from policybridge_serdes import Outcome, PolicyReference, SessionOptions
from policybridge_server.ledger.reader import LedgerReader
from tests.client.altering import ALTERATIONS, altering
from tests.conftest import RunningServer, running_server
from tests.forms.parts import forms
from tests.native.clients import Connect, programs
from tests.native.conftest import Target
from tests.native.library.test_client import KINDS
from tests.server.ledger.asking import ask, await_forms, open_network, rows, write_policies


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a folder for a socket and a cache."""
    with TemporaryDirectory(prefix="pb-") as name:
        monkeypatch.setenv("XDG_CACHE_HOME", name)
        yield Path(name)


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    write_policies(repository := tmp_path_factory.mktemp("policies"))
    return repository


@pytest.fixture(scope="module")
def server(policies: Path) -> Iterator[RunningServer]:
    with (
        TemporaryDirectory(prefix="pb-") as name,
        running_server(policies, Path(name), "--ledger", Path(name) / "ledger.db") as running,
    ):
        await_forms(running.socket)
        yield running


@pytest.fixture(params=["cpp-socket-sanitized", "cpp-grpc"])
def client(request: pytest.FixtureRequest, native: Target) -> Iterator[tuple[Connect, str]]:
    """Give a client, and its transport."""
    kind = KINDS[request.param]
    with programs(kind.program(native)) as connect:
        yield connect, kind.transport


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_a_form_that_is_refused_leaves_the_decisions_to_the_server(
    client: tuple[Connect, str], policies: Path, server: RunningServer, folder: Path, alteration: str
) -> None:
    connect, transport = client
    asked = rows(30)
    with open_network(server.socket) as session:
        expected = ask(session, asked)
    data = [each.data for each in forms("network", policies).values()]
    with altering(server, data, ALTERATIONS[alteration], folder) as addresses:
        connection = connect(addresses[transport])
        local = connection.open(PolicyReference("network"), SIGNATURE, SessionOptions("main.c"), "place auto")
        assert b"".join(local.evaluate(row).tobytes() for row in asked) == expected
        local.report(Outcome({"text": 1.0}, "ok"))
        assert local.counts == {"decisions": 30, "fallbacks": 0, "retries": 0, "reopened": 0}
        identity = local.id
    with LedgerReader(Path(server.socket.removeprefix("socket:")).parent / "ledger.db") as reader:
        found = reader.session(identity)
    assert (found.labels, found.decisions, found.lost) == ({}, 30, 0)
    assert found.outcome == Outcome({"text": 1.0}, "ok")

"""Sessions of the C++ library that the policy's form decides, over every channel that carries forms."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_bench.network import SIGNATURE
from policybridge_core.errors import InvalidError, PreconditionError, TooLargeError, UnavailableError
from policybridge_serdes import Outcome, PolicyReference, SessionOptions, Signature
from policybridge_server.ledger.query import SessionRecord
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch
from tests.client.peers import Peer
from tests.conftest import RunningServer, running_server
from tests.native.clients import Connect, NativeSession, programs
from tests.native.conftest import Target
from tests.native.library.test_client import KINDS, Kind
from tests.server.ledger.asking import ask, await_forms, open_network, rows, write_policies

HERE, AUTO = "place here", "place auto"


@pytest.fixture(params=["cpp-socket", "cpp-socket-sanitized", "cpp-grpc"], scope="module")
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_policies(repository)
    return repository


@pytest.fixture(scope="module")
def server(policies: Path) -> Iterator[RunningServer]:
    with (
        TemporaryDirectory(prefix="pb-") as folder,
        running_server(policies, Path(folder), "--ledger", Path(folder) / "ledger.db") as running,
    ):
        await_forms(running.socket)
        yield running


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep forms in a folder of the test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "policybridge" / "forms"


@pytest.fixture
def connect(cache: Path, native: Target, kind: Kind) -> Iterator[Connect]:
    assert os.environ["XDG_CACHE_HOME"] in str(cache)
    with programs(kind.program(native)) as made:
        yield made


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Make a folder whose path is short enough for a Unix socket."""
    with TemporaryDirectory(prefix="pb-") as folder:
        yield Path(folder)


def opened(
    connect: Connect, kind: Kind, server: RunningServer, *settings: str, policy: str = "network"
) -> NativeSession:
    connection = connect(kind.address(server))
    return connection.open(PolicyReference.parse(policy), SIGNATURE, SessionOptions("main.c"), *settings)


def recorded(server: RunningServer, session: str) -> tuple[SessionRecord, DecisionBatch]:
    with LedgerReader(Path(server.socket.removeprefix("socket:")).parent / "ledger.db") as reader:
        found = reader.session(session)
        (batch,) = reader.trajectory(found).batches
    return found, batch


def test_decisions_and_their_record_are_those_of_the_server(
    connect: Connect, kind: Kind, server: RunningServer
) -> None:
    asked = rows(250)
    with open_network(server.socket) as session:
        answers = ask(session, asked)
    local = opened(connect, kind, server, HERE)
    made = b"".join(local.evaluate(row).tobytes() for row in asked[:130])
    local.context("f")
    made += b"".join(local.evaluate(row).tobytes() for row in asked[130:])
    local.report(Outcome({"text": 128.0}, "ok"))
    assert made == answers
    found, batch = recorded(server, local.id)
    assert (found.labels, found.decisions, found.lost) == ({"evaluated": "client"}, 250, 0)
    assert batch.observations.tobytes() == b"".join(row.tobytes() for row in asked)
    assert batch.advices.tobytes() == answers
    assert batch.contexts.tolist() == ["main.c"] * 130 + ["f"] * 120


def test_decisions_that_were_not_reported_yet_are_sent_at_the_end(
    connect: Connect, kind: Kind, server: RunningServer
) -> None:
    local = opened(connect, kind, server, AUTO)
    for row in rows(3):
        local.evaluate(row)
    local.close()
    with open_network(server.socket) as other:
        ask(other, rows(1))
        other.report(Outcome())
    assert recorded(server, local.id)[0].decisions == 3


def test_clients_of_both_languages_share_the_forms(
    cache: Path, connect: Connect, kind: Kind, server: RunningServer
) -> None:
    opened(connect, kind, server, HERE).close()
    (file,) = cache.iterdir()
    content = file.read_bytes()
    file.write_bytes(b"\0" + content[1:])
    again = opened(connect, kind, server, HERE)
    assert again.evaluate(rows(1)[0]).nbytes == 8
    assert file.read_bytes() == content


@pytest.mark.parametrize("wrong", ["link", "pipe", "too large"])
def test_what_is_no_file_of_a_form_in_the_cache_makes_room_for_the_form(
    cache: Path, connect: Connect, kind: Kind, server: RunningServer, wrong: str
) -> None:
    opened(connect, kind, server, HERE).close()
    (file,) = cache.iterdir()
    content = file.read_bytes()
    file.unlink()
    if wrong == "link":
        (cache.parent / "elsewhere").write_bytes(content)
        file.symlink_to(cache.parent / "elsewhere")
    elif wrong == "pipe":
        os.mkfifo(file)
    else:
        file.touch()
        os.truncate(file, 1 << 40)
    assert opened(connect, kind, server, HERE).evaluate(rows(1)[0]).nbytes == 8
    assert file.is_file()
    assert not file.is_symlink()
    assert file.read_bytes() == content


def test_a_cache_that_others_can_write_is_not_used(
    cache: Path, connect: Connect, kind: Kind, server: RunningServer
) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert opened(connect, kind, server, HERE).evaluate(rows(1)[0]).nbytes == 8
    assert not list(cache.iterdir())


@pytest.mark.parametrize("kind", ["cpp-socket-sanitized"], indirect=True)
@pytest.mark.parametrize("name", ["0" * 64, "../secret", ""])
def test_a_form_that_has_not_its_digest_is_refused_and_kept_nowhere(
    cache: Path, connect: Connect, short_folder: Path, name: str
) -> None:
    with pytest.raises(InvalidError, match="another form"):
        open_at(connect, short_folder, {"digest": f"sha256:{name}", "bytes": 4}, b"form")
    assert [each for each in cache.parent.rglob("*") if each.is_file()] == []


@pytest.mark.parametrize("kind", ["cpp-socket-sanitized"], indirect=True)
def test_a_form_that_is_larger_than_any_is_not_asked_for(connect: Connect, short_folder: Path) -> None:
    with pytest.raises(TooLargeError, match="at most 33554432"):
        open_at(connect, short_folder, {"digest": "sha256:" + "0" * 64, "bytes": 1 << 60}, b"")


def open_at(connect: Connect, folder: Path, form: dict[str, object], sent: bytes) -> None:
    """Open a session at a peer that announces a form and then sends some bytes as it."""
    said = {"session": "s", "policy": "p", "version": 3, "digest": "sha256:0", "forms": {"": form}}
    peer = Peer(folder / "s", (json.dumps(said).encode() + b"\n",), (b"\0" + sent,), 1)
    try:
        connect(f"socket:{folder / 's'}").open(PolicyReference("p"), SIGNATURE, SessionOptions(), HERE)
    finally:
        peer.close()


def test_a_policy_without_a_form_is_asked_or_refused_as_the_user_says(
    connect: Connect, kind: Kind, server: RunningServer
) -> None:
    local = opened(connect, kind, server, AUTO, policy="first")
    assert local.evaluate(rows(1)[0]).nbytes == 8
    with pytest.raises(PreconditionError, match="no portable form"):
        opened(connect, kind, server, HERE, policy="first")


def test_features_that_the_policy_lacks_are_the_servers_fault_to_tell(
    connect: Connect, kind: Kind, server: RunningServer
) -> None:
    short = Signature.of([SIGNATURE.features.specs[0]], SIGNATURE.advice)
    connection = connect(kind.address(server))

    def decide() -> None:
        connection.open(PolicyReference("network"), short, SessionOptions(), AUTO).decide()

    with pytest.raises(InvalidError, match=SIGNATURE.features.specs[1].name):
        decide()


def test_decisions_go_on_without_a_server(connect: Connect, kind: Kind, policies: Path) -> None:
    asked = rows(40)
    with TemporaryDirectory(prefix="pb-") as folder, running_server(policies, Path(folder)) as server:
        with open_network(server.socket) as session:
            answers = ask(session, asked)
        await_forms(server.socket)
        local = opened(connect, kind, server, AUTO)
        made = b"".join(local.evaluate(row).tobytes() for row in asked[:9])
        server.kill()
        made += b"".join(local.evaluate(row).tobytes() for row in asked[9:])
        assert made == answers
        with pytest.raises(UnavailableError):
            local.report(Outcome())

"""Replays of real compilations, with the server gone; and what the host tells the ledger of them."""

import json
import shutil
import sqlite3
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession
from policybridge_client.llvm.bounds import GROWTH_LIMIT
from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.record import LABEL
from policybridge_client.llvm.replay import replay
from policybridge_client.llvm.replay_command import load_recorded
from policybridge_client.llvm.statistics import Report
from policybridge_core.closing import Closing
from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_demo.listening import ListeningSession
from policybridge_serdes import Outcome, PolicyReference, SessionOptions, Signature
from policybridge_serdes.interactive import Header, InteractiveReader
from policybridge_server.ledger.packing import unpack_rows
from policybridge_server.ledger.query import SessionRecord
from policybridge_server.ledger.reader import LedgerReader
from tests.client.compilers import DRIVERS, ZIG, left_behind, parameters, start, write_pressure, write_source
from tests.client.policies import write_policies
from tests.conftest import RunningServer, command, running_server


@pytest.fixture(scope="module")
def asked_policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_policies(repository)
    return repository


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def server(asked_policies: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    monkeypatch.chdir(ledger.parent)
    with (
        TemporaryDirectory(prefix="pb-") as name,
        running_server(asked_policies, Path(name), "--ledger", ledger) as running,
    ):
        yield running


def compiled(server: RunningServer, policy: str, words: Sequence[str], task: str = "inline", **more: str) -> Report:
    config = HostConfig(PolicyReference.parse(policy), server.socket, task=task, options=more)
    return run_compiler(words, config)


def recorded(ledger: Path, report: Report) -> SessionRecord:
    with LedgerReader(ledger) as reader:
        return reader.session(report.session_ids[0])


def stop(server: RunningServer) -> None:
    """End it, so that nobody is there to be asked."""
    server.process.terminate()
    server.process.wait(60)


def replayed(ledger: Path, session: str, *arguments: str) -> tuple[int, dict[str, object]]:
    words = command("replay", "--ledger", ledger, "--json", session, *arguments)
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"said": done.stderr}


@pytest.mark.parametrize("compiler", DRIVERS)
def test_a_replay_without_a_server_gives_the_same_observations_and_object(
    server: RunningServer, ledger: Path, compiler: str
) -> None:
    words = [*start(compiler), "-Oz", "-c", write_source(ledger.parent).name, "-o", "made.o"]
    report = compiled(server, "always", words)
    stop(server)
    made = Path("made.o")
    shutil.move(made, "kept.o")
    status, result = replayed(ledger, report.session_ids[0])
    assert (status, result["identical"], result["object"]) == (0, True, True)
    assert result["decisions"] == report.statistics.decisions
    assert not made.exists(), "the object is not kept"


@pytest.mark.parametrize(("task", "policy"), [("evict", "legal"), ("priority", "weight")])
@pytest.mark.parametrize("compiler", parameters("clang-19", "clang-22"))
def test_register_allocation_is_replayed_too(
    server: RunningServer, ledger: Path, compiler: str, task: str, policy: str
) -> None:
    words = [compiler, "-O2", "-c", write_pressure(ledger.parent).name, "-o", "made.o"]
    report = compiled(server, policy, words, task)
    stop(server)
    result = replay(load_recorded(ledger, report.session_ids[0]))
    assert (result.identical, result.object, result.decisions) == (True, True, report.statistics.decisions)
    assert result.decisions > 10


def test_a_compilation_beyond_the_growth_limit_is_replayed_too(server: RunningServer, ledger: Path) -> None:
    words = [*ZIG, "-Oz", "-c", write_source(ledger.parent).name, "-o", "made.o"]
    report = run_compiler(words, HostConfig("always", server.socket, growth_limit=0.01))
    stop(server)
    assert report.statistics.limited > 0
    result = replay(load_recorded(ledger, report.session_ids[0]))
    assert (result.identical, result.object, result.decisions) == (True, True, report.statistics.decisions)


def test_a_recorded_growth_limit_that_is_no_number_is_refused(ledger: Path, session: str) -> None:
    recorded = load_recorded(ledger, session)
    compilation = msgspec.structs.replace(recorded.compilation, growth_limit="much")
    with pytest.raises(InvalidError, match="growth limit is no number"):
        replay(replace(recorded, compilation=compilation))


def tamper(ledger: Path, column: str, position: int) -> None:
    with sqlite3.connect(ledger) as database:
        found = database.execute(
            f"SELECT segments.rowid, count, {column}, text FROM segments JOIN signatures ON number = signature "
            "WHERE first = 1"
        ).fetchall()
        ((number, count, packed, text),) = found
        (header,) = InteractiveReader().feed(f"{text}\n".encode())
        assert isinstance(header, Header)
        layout = header.signature.features if column == "observations" else header.signature.advice_layout
        data = bytearray(unpack_rows(layout, packed, count).tobytes())
        data[position] ^= 1
        database.execute(f"UPDATE segments SET {column} = ? WHERE rowid = ?", (zlib.compress(data), number))
    database.close()


@pytest.fixture
def session(server: RunningServer, ledger: Path) -> str:
    """Record one compilation by zig under `never`, and end the server."""
    report = compiled(server, "never", [*ZIG, "-Oz", "-c", write_source(ledger.parent).name, "-o", "made.o"])
    stop(server)
    return report.session_ids[0]


def test_a_changed_observation_is_reported_with_its_step_and_features(ledger: Path, session: str) -> None:
    width = replay_width(ledger, session)
    tamper(ledger, "observations", 4 * width)
    status, result = replayed(ledger, session)
    assert (status, result["identical"], result["step"], result["decisions"]) == (1, False, 5, 4)
    assert result["difference"] == "the observation differs in sroa_savings"


def replay_width(ledger: Path, session: str) -> int:
    return load_recorded(ledger, session).decisions[0].signature.features.size


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the replay has its files, so that its processes are told from those of other tests."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_a_changed_advice_is_reported_where_the_compilation_goes_another_way(
    ledger: Path, session: str, scratch: Path
) -> None:
    tamper(ledger, "advices", 0)
    status, result = replayed(ledger, session)
    assert (status, result["identical"]) == (1, False)
    assert left_behind(scratch) == []


def test_a_changed_object_digest_is_reported(ledger: Path, session: str) -> None:
    with sqlite3.connect(ledger) as database:
        database.execute("UPDATE outcomes SET value = value + 1 WHERE name = 'object_digest'")
    database.close()
    status, result = replayed(ledger, session)
    assert (status, result["difference"]) == (1, "all decisions are the same, but the object differs")


def test_a_record_that_lacks_decisions_ends_a_compiler_that_asks_on(ledger: Path, session: str, scratch: Path) -> None:
    with sqlite3.connect(ledger) as database:
        database.execute("DELETE FROM segments")
        database.execute("UPDATE sessions SET decisions = 0")
    database.close()
    status, result = replayed(ledger, session)
    assert (status, result["difference"]) == (1, "the compiler asks for more than the 0 recorded decisions")
    assert left_behind(scratch) == []


def test_another_source_is_reported_as_different(ledger: Path, session: str) -> None:
    write_source(ledger.parent, functions=3)
    status, result = replayed(ledger, session)
    assert (status, result["identical"]) == (1, False)
    write_source(ledger.parent, "other.c")
    status, result = replayed(ledger, session, "--", *ZIG, "-Oz", "-c", "other.c", "-o", "other.o")
    assert result["decisions"] == len(load_recorded(ledger, session).decisions)
    assert result["difference"] == "all decisions are the same, but the object differs"


def test_the_host_tells_how_the_compiler_was_started_and_what_came_of_it(server: RunningServer, ledger: Path) -> None:
    words = [*ZIG, "-Oz", "-c", write_source(ledger.parent).name, "-o", "made.o"]
    report = compiled(server, "never", words)
    found = recorded(ledger, report)
    assert json.loads(found.labels[LABEL]) == {
        "command": words,
        "cwd": str(ledger.parent),
        "task": "inline",
        "growth_limit": f"{GROWTH_LIMIT:g}",
    }
    assert found.outcome is not None
    assert found.outcome.status == "ok"
    assert set(found.outcome.values) == {
        "exit_status",
        "seconds",
        "asked",
        "defaults",
        "limited",
        "sessions",
        "headers",
        "object_digest",
    }
    assert found.outcome.values["asked"] == found.decisions == report.statistics.decisions
    connect(server.socket).report_outcome(report.session_ids[0], Outcome({"text": Path("made.o").stat().st_size}))
    found = recorded(ledger, report)
    assert found.outcome is not None
    assert {"text", "object_digest"} <= set(found.outcome.values)


def test_a_compilation_that_fell_back_is_told_and_not_replayed(server: RunningServer, ledger: Path) -> None:
    words = [*ZIG, "-Oz", "-c", write_source(ledger.parent).name, "-o", "made.o"]
    report = compiled(server, "never", words, raise_at="5")
    found = recorded(ledger, report)
    assert found.outcome is not None
    assert (found.outcome.status, found.decisions) == ("fallback", 4)
    assert found.outcome.values["defaults"] == report.statistics.defaults > 0
    with pytest.raises(PreconditionError, match="the policy did not make all decisions"):
        load_recorded(ledger, report.session_ids[0])


def test_a_compiler_that_fails_is_told(server: RunningServer, ledger: Path) -> None:
    source = write_source(ledger.parent)
    source.write_text(source.read_text() + '__asm__("no such instruction");\n')
    report = compiled(server, "never", [*ZIG, "-Oz", "-c", source.name, "-o", "made.o"])
    found = recorded(ledger, report)
    assert found.outcome is not None
    assert report.status != 0
    assert (found.outcome.status, found.outcome.values["exit_status"]) == ("failed", report.status)
    assert "object_digest" not in found.outcome.values


def test_a_server_that_dies_with_the_last_answer_changes_nothing(server: RunningServer, ledger: Path) -> None:
    words = [*ZIG, "-Oz", "-c", write_source(ledger.parent).name, "-o", "made.o"]
    connection = KilledBeforeTheReport(server)
    report = run_compiler(words, HostConfig(PolicyReference("never"), server.socket), connection=connection)
    assert (report.status, report.fallback, report.error, connection.tried) == (0, None, None, True)
    assert Path("made.o").exists()


def test_a_server_that_is_killed_behind_a_compilation_has_it_whole(server: RunningServer, ledger: Path) -> None:
    words = [*ZIG, "-Oz", "-c", write_source(ledger.parent).name, "-o", "made.o"]
    report = compiled(server, "never", words)
    server.kill()
    # The next server marks open sessions as interrupted.
    with TemporaryDirectory(prefix="pb-") as name, running_server(None, Path(name), "--ledger", ledger):
        found = recorded(ledger, report)
    assert found.outcome is not None
    assert (found.outcome.status, found.interrupted) == ("ok", False)
    assert found.decisions == report.statistics.decisions > 0


class KilledBeforeTheReport(Closing):
    """A connection whose server is gone when the outcome is reported."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._inner = connect(server.socket)
        self.check = self._inner.check
        self.tried = False

    def open(self, policy: PolicyReference, signature: Signature, options: SessionOptions) -> ClientSession:
        return KilledBeforeItsEnd(self._inner.open(policy, signature, options), self._server)

    def close(self) -> None:
        self._inner.close()

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:
        self.tried = True
        self._inner.report_outcome(session_id, outcome)


class KilledBeforeItsEnd(ListeningSession):
    """A session whose server is gone at its end."""

    def __init__(self, session: ClientSession, server: RunningServer) -> None:
        super().__init__(session, lambda *_: None)
        self._server = server

    def conclude(self, outcome: Outcome) -> None:
        self._server.kill()
        super().conclude(outcome)


def test_several_sources_in_one_command_are_refused(server: RunningServer, ledger: Path) -> None:
    sources = [write_source(ledger.parent, name).name for name in ("a.c", "b.c")]
    report = compiled(server, "never", [*ZIG, "-Oz", "-c", *sources])
    with pytest.raises(PreconditionError, match="the command compiles several sources"):
        load_recorded(ledger, report.session_ids[0])


def test_a_command_without_an_output_is_replayed_with_its_object_which_is_left_alone(
    server: RunningServer, ledger: Path
) -> None:
    report = compiled(server, "always", [*ZIG, "-Oz", "-c", write_source(ledger.parent).name])
    stop(server)
    made = ledger.parent / "module.o"
    made.write_bytes(b"mine")
    status, result = replayed(ledger, report.session_ids[0])
    assert (status, result["identical"], result["object"]) == (0, True, True)
    assert made.read_bytes() == b"mine"

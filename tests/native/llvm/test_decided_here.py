"""The bundled policy of both kinds, decided in the compiler by its forms and by the server: the same in everything."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch
from tests.client.altering import ALTERATIONS, altering
from tests.conftest import RunningServer, running_server
from tests.forms.parts import forms
from tests.measures.delaying import Way, far
from tests.measures.kills_here import kill_servers
from tests.native.conftest import Target, build_grpc
from tests.native.llvm.plugins import emit_demo
from tests.native.llvm.stores import Made, Tuner
from tests.server.ledger.asking import await_forms, keep_refused

VFPRINTF = "libc/musl/src/stdio/vfprintf.c"
MODULES = (VFPRINTF, "libunwind/src/libunwind.cpp")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with (
        TemporaryDirectory(prefix="pb-") as folder,
        running_server(None, Path(folder), "--ledger", Path(folder) / "ledger.db") as running,
    ):
        await_forms(running.socket, "size")
        yield running


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "policybridge" / "forms"


@pytest.fixture
def tuner(native: Target, major: str, tmp_path: Path) -> Tuner:
    return Tuner.of(native, major, tmp_path)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


def told(made: Made) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((made.folder / "stats.json").read_text())
    return read


def recorded(server: RunningServer, made: Made) -> list[DecisionBatch]:
    (session,) = told(made)["sessions"]
    with LedgerReader(Path(server.socket.removeprefix("socket:")).parent / "ledger.db") as reader:
        found = reader.session(session)
        assert found.outcome is not None
        assert found.outcome.status == "ok"
        return list(reader.trajectory(found).batches)


def compiled(tuner: Tuner, module: Path, address: str, evaluate: str, **settings: str) -> Made:
    return tuner.compile(module, "-x", "ir", "-Oz", server=address, policy="size", evaluate=evaluate, **settings)


def assert_alike(statistics: dict[str, Any], expected: dict[str, Any]) -> None:
    for key in ("policy", "decisions", "advice", "passes", "fallback"):
        assert statistics.get(key) == expected.get(key), key


def assert_recorded_alike(made: list[DecisionBatch], expected: list[DecisionBatch]) -> None:
    assert [batch.signature for batch in made] == [batch.signature for batch in expected]
    for one, other in zip(made, expected, strict=True):
        assert one.observations.tobytes() == other.observations.tobytes()
        assert one.advices.tobytes() == other.advices.tobytes()
        assert one.contexts.tolist() == other.contexts.tolist()


@pytest.mark.parametrize("path", MODULES)
def test_object_statistics_and_record_are_those_of_the_server(
    tuner: Tuner, server: RunningServer, demo: Path, path: str
) -> None:
    module = emit_demo(tuner.major, path, demo)
    asked = compiled(tuner, module, server.socket, "there")
    there, expected = told(asked), recorded(server, asked)
    made = compiled(tuner, module, server.socket, "here")
    assert made.output == asked.output
    assert_alike(told(made), there)
    assert_recorded_alike(recorded(server, made), expected)


def test_by_default_the_compiler_decides_where_the_policy_has_a_form_and_the_server_where_it_has_none(
    tuner: Tuner, server: RunningServer, demo: Path
) -> None:
    module = emit_demo(tuner.major, VFPRINTF, demo)
    for policy, expected in (("size", "client"), ("inlining-default", None)):
        made = tuner.compile(module, "-x", "ir", "-Oz", server=server.socket, policy=policy, fallback="error")
        assert (made.status, made.said) == (0, "")
        assert recorded(server, made)[0].sessions[0].labels.get("evaluated") == expected


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_where_the_compiler_refuses_the_forms_the_server_decides_and_the_user_hears_nothing(
    native: Target, tmp_path: Path, server: RunningServer, demo: Path, alteration: str
) -> None:
    build_grpc(native)
    tuner = Tuner.of(native, "22", tmp_path)
    module = emit_demo("22", MODULES[1], demo)
    asked = compiled(tuner, module, server.socket, "there")
    there, expected = told(asked), recorded(server, asked)
    forms_of_size = [each.data for each in forms("size").values()]
    with (
        TemporaryDirectory(prefix="pb-") as folder,
        altering(server, forms_of_size, ALTERATIONS[alteration], Path(folder)) as addresses,
    ):
        for address in addresses.values():
            made = compiled(tuner, module, address, "auto")
            assert (made.output, made.said) == (asked.output, "")
            assert_alike(told(made), there)
            assert_recorded_alike(recorded(server, made), expected)
            assert "evaluated" not in recorded(server, made)[0].sessions[0].labels


def test_decisions_of_both_kinds_are_those_of_the_server(tuner: Tuner, server: RunningServer, demo: Path) -> None:
    module = emit_demo(tuner.major, VFPRINTF, demo)
    asked = compiled(tuner, module, server.socket, "there")
    there, expected = told(asked), recorded(server, asked)
    made = compiled(tuner, module, server.socket, "here")
    assert len(expected) == 2
    assert_alike(told(made), there)
    assert_recorded_alike(recorded(server, made), expected)


def test_the_policys_forms_are_in_the_cache_and_used_without_being_sent_again(
    tuner: Tuner, server: RunningServer, demo: Path, cache: Path
) -> None:
    module = emit_demo(tuner.major, VFPRINTF, demo)
    first = told(compiled(tuner, module, server.socket, "auto"))
    files = {file.name: file.stat().st_mtime_ns for file in cache.iterdir()}
    assert len(files) == 2
    assert_alike(told(compiled(tuner, module, server.socket, "auto")), first)
    assert {file.name: file.stat().st_mtime_ns for file in cache.iterdir()} == files


def test_a_server_over_grpc_gives_the_same_object(
    native: Target, tmp_path: Path, server: RunningServer, demo: Path
) -> None:
    build_grpc(native)
    tuner = Tuner.of(native, "22", tmp_path)
    module = emit_demo("22", MODULES[1], demo)
    asked = compiled(tuner, module, server.socket, "there")
    expected = recorded(server, asked)
    made = compiled(tuner, module, server.grpc, "here")
    assert told(made)["fallback"] is None
    assert made.output == asked.output
    assert_recorded_alike(recorded(server, made), expected)


def test_a_compile_whose_server_is_killed_ends_with_the_object_of_its_version_and_its_record_comes_later(
    native: Target, tmp_path: Path
) -> None:
    with TemporaryDirectory(prefix="pb-") as folder:
        found = kill_servers(Tuner.of(native, "22", tmp_path), Path(folder), 5)
    assert (found["wrong"], found["not whole"], found["left"]) == (0, 0, 0)
    assert found["the version's"] == found["whole"] > 0
    assert found["sent"] > 0


def test_records_of_earlier_sessions_are_sent_unless_the_user_says_no(
    tuner: Tuner, server: RunningServer, demo: Path
) -> None:
    module = emit_demo(tuner.major, VFPRINTF, demo)
    keep_refused(server.socket)
    assert "records" not in told(compiled(tuner, module, server.socket, "here", spool="0"))
    assert told(compiled(tuner, module, server.socket, "here"))["records"] == {"kept": 0, "sent": 0, "refused": 1}


def test_a_module_without_calls_is_plain_where_the_policy_has_no_form_for_passes(
    tuner: Tuner, server: RunningServer
) -> None:
    source = tuner.folder / "alone.c"
    source.write_text("int f(int a) { return a + 1; }\n")
    made = tuner.compile(source, server=server.socket, policy="inliner", evaluate="here", fallback="error")
    assert (made.status, made.said) == (0, "")
    assert made.output == tuner.plain(source)


@pytest.mark.parametrize(
    "fault",
    [{"silent": True}, {"round_trip": 4.0}, {"most": 50_000}, {"most": 0}],
    ids=["silent", "late", "breaks in the form", "breaks at once"],
)
def test_a_far_server_that_fails_costs_no_object(
    native: Target, tmp_path: Path, server: RunningServer, demo: Path, fault: dict[str, Any]
) -> None:
    build_grpc(native)
    tuner = Tuner.of(native, "22", tmp_path)
    module = emit_demo("22", VFPRINTF, demo)
    with far(Way(int(server.grpc.rpartition(":")[2]), **{"round_trip": 0.02, **fault})) as port:
        made = compiled(tuner, module, f"grpc:127.0.0.1:{port}", "here", timeout="1", retry_after="0")
    assert made.status == 0
    assert made.output == tuner.plain(module, "-x", "ir", "-Oz")
    assert told(made)["fallback"]["reason"] in made.said
    assert "records" not in told(made)


def test_a_far_server_that_is_silent_in_the_form_is_not_waited_for_by_the_next_compile(
    native: Target, tmp_path: Path, server: RunningServer, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    build_grpc(native)
    tuner = Tuner.of(native, "22", tmp_path)
    module = emit_demo("22", VFPRINTF, demo)
    way = Way(int(server.grpc.rpartition(":")[2]), 0.02, most=50_000, silent=True)
    with far(way) as port:
        reasons = [
            told(compiled(tuner, module, f"grpc:127.0.0.1:{port}", "here", timeout="1", retry_after="3600"))["fallback"]
            for _ in range(2)
        ]
    assert reasons[0]["reason"].startswith("no answer from the server")
    assert "it is asked again in" in reasons[1]["reason"]


def test_a_server_without_forms_that_has_room_for_one_session_decides(tuner: Tuner, demo: Path) -> None:
    module = emit_demo(tuner.major, VFPRINTF, demo)
    with (
        TemporaryDirectory(prefix="pb-") as folder,
        running_server(None, Path(folder), "--no-forms", "--max-sessions", 1) as running,
    ):
        made = compiled(tuner, module, running.socket, "auto", fallback="error")
    assert (made.status, made.said) == (0, "")
    assert told(made)["decisions"] > 0


def test_a_socket_that_is_silent_costs_no_object(tuner: Tuner, demo: Path) -> None:
    module = emit_demo(tuner.major, VFPRINTF, demo)
    with TemporaryDirectory(prefix="pb-") as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/s")
        listening.listen()
        made = compiled(tuner, module, f"socket:{folder}/s", "here", timeout="1", retry_after="0")
    assert (made.status, told(made)["decisions"]) == (0, 0)
    assert made.output == tuner.plain(module, "-x", "ir", "-Oz")


def test_an_unknown_place_is_an_error_that_names_the_known_ones(tuner: Tuner, server: RunningServer) -> None:
    source = tuner.folder / "empty.c"
    source.write_text("int x;\n")
    made = tuner.compile(source, server=server.socket, policy="size", evaluate="everywhere", fallback="error")
    assert made.status != 0
    assert "here, there or by auto" in made.said

"""The launcher and ``policybridge run`` decide by the form of the policy's version: the object is the server's."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_server.ledger.reader import LedgerReader
from tests.client.altering import ALTERATIONS, altering
from tests.client.compilers import write_source
from tests.conftest import RunningServer, running_server
from tests.forms.parts import forms
from tests.native.launcher.running import HOST, Ran, run
from tests.server.ledger.asking import await_forms, keep_refused

COMPILE = ("clang-22", "-Oz", "-c", "module.c", "-o", "made.o")


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    """Serve the bundled policies, with a cache of the test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with (
        TemporaryDirectory(prefix="pb-") as folder,
        running_server(None, Path(folder), "--ledger", Path(folder) / "ledger.db") as running,
    ):
        await_forms(running.socket, "inliner")
        yield running


def labels(server: RunningServer, ran: Ran) -> dict[str, str]:
    """Give the labels of the only session, whose decisions are all recorded."""
    (session,) = ran.stats["sessions"]
    with LedgerReader(Path(server.socket.removeprefix("socket:")).parent / "ledger.db") as reader:
        found = reader.session(session)
    assert found.decisions == ran.stats["decisions"] > 0
    return dict(found.labels)


def test_object_and_record_are_those_of_the_server(launcher: str, bundled: RunningServer, folder: Path) -> None:
    write_source(folder)
    words = ("--server", bundled.socket, "--policy", "inliner", "--fallback", "error")
    asked = run([launcher], (*words, "--evaluate", "there"), COMPILE)
    assert asked.status == 0
    assert "evaluated" not in labels(bundled, asked)
    for host in (HOST, [launcher]):
        here = run(host, (*words, "--evaluate", "here"), COMPILE)
        assert here.output == asked.output
        assert here.stats["advice"] == asked.stats["advice"]
        assert labels(bundled, here)["evaluated"] == "client"


def test_by_default_the_launcher_decides_where_the_policy_has_a_form_and_the_server_where_it_has_none(
    launcher: str, bundled: RunningServer, folder: Path
) -> None:
    write_source(folder)
    for policy, expected in (("inliner", "client"), ("inlining-default", None)):
        made = run([launcher], ("--server", bundled.socket, "--policy", policy, "--fallback", "error"), COMPILE)
        assert made.status == 0
        assert labels(bundled, made).get("evaluated") == expected


def test_by_default_python_asks_a_socket_which_is_faster_and_decides_over_grpc(
    bundled: RunningServer, folder: Path
) -> None:
    write_source(folder)
    made = {}
    for address, expected in ((bundled.socket, None), (bundled.grpc, "client")):
        made[address] = run(HOST, ("--server", address, "--policy", "inliner", "--fallback", "error"), COMPILE)
        assert labels(bundled, made[address]).get("evaluated") == expected
    assert made[bundled.socket].output == made[bundled.grpc].output


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_where_the_form_is_refused_the_server_decides_and_the_user_hears_nothing(
    launcher: str, bundled: RunningServer, folder: Path, alteration: str
) -> None:
    write_source(folder)
    words = ("--policy", "inliner", "--fallback", "error")
    asked = run([launcher], ("--server", bundled.socket, *words, "--evaluate", "there"), COMPILE)
    form = forms("inliner")[""].data
    with altering(bundled, [form], ALTERATIONS[alteration], folder) as addresses:
        for host, address in (([launcher], addresses["socket"]), (HOST, addresses["grpc"])):
            made = run(host, ("--server", address, *words), COMPILE)
            assert (made.output, made.said) == (asked.output, "")
            assert made.stats["advice"] == asked.stats["advice"]
            assert "evaluated" not in labels(bundled, made)


def test_records_of_earlier_sessions_are_sent_unless_the_user_says_no(
    launcher: str, bundled: RunningServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(folder)
    words = ("--server", bundled.socket, "--policy", "inliner", "--fallback", "error", "--evaluate", "here")
    for host in (HOST, [launcher]):
        keep_refused(bundled.socket)
        assert "records" not in run(host, (*words, "--no-spool"), COMPILE).stats
        with monkeypatch.context() as without:
            without.setenv("POLICYBRIDGE_SPOOL", "0")
            assert "records" not in run(host, words, COMPILE).stats
        assert run(host, words, COMPILE).stats["records"] == {"kept": 0, "sent": 0, "refused": 1}
        assert "records" not in run(host, words, COMPILE).stats

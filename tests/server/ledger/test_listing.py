"""``policybridge sessions list``: a table for people, and what it says of filters that no session meets."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from policybridge_serdes import Outcome, PolicyVersion
from policybridge_server.backends.contract import SessionView
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.listing import table
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.records import Begun, Reported
from policybridge_server.ledger.sqlite import SqliteStore
from tests.commands import Told, told, unread


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ledger") / "runs.db"
    short = SessionView("a" * 32, PolicyVersion("inliner", 1, "sha256:0"), labels={"project": "zlib"})
    hostile = {"project": "\x1b[2Jgone\nok", "compilation": "{}", "about": "x" * 300}
    long = SessionView("b" * 32, PolicyVersion("a-policy-of-a-long-name", 12345, "sha256:0"), labels=hostile)
    with closing(SqliteStore(path, Bounds())) as store:
        store.write([Begun(short, 0.0), Begun(long, 1.0), Reported(short.id, Outcome({}, "ok"), 2.0)])
    return path


def listed(ledger: Path, *words: str) -> Told:
    return told("sessions", "list", "--ledger", ledger, *words)


def test_columns_stand_below_each_other_fit_the_terminal_and_cannot_steer_it(ledger: Path) -> None:
    with LedgerReader(ledger) as reader:
        head, first, second = table(reader.sessions(), 100)
    place = head.index("STATUS")
    assert head.split() == ["SESSION", "OPENED", "POLICY", "DECISIONS", "STATUS", "LABELS"]
    assert (first[place:], second[place : place + 4]) == ("ok      project=zlib", "open")
    assert first.split()[:4] == ["aaaaaaaaaaaa", "1970-01-01T00:00:00Z", "inliner@1", "0"]
    assert (len(second), second[-1], second.isprintable(), "compilation" in second) == (100, "…", True, False)


def test_labels_that_just_fit_the_terminal_are_whole(ledger: Path) -> None:
    with LedgerReader(ledger) as reader:
        *_, whole = table(reader.sessions(), None)
        *_, just = table(reader.sessions(), len(whole))
        *_, narrow = table(reader.sessions(), len(whole) - 1)
    assert (just, narrow) == (whole, f"{whole[:-2]}…")


def test_in_a_pipe_a_line_is_whole_and_json_has_everything(ledger: Path) -> None:
    lines = listed(ledger).stdout.splitlines()
    assert (len(lines), lines[2].endswith("x" * 300)) == (3, True)
    found = [json.loads(line) for line in listed(ledger, "--json").stdout.splitlines()]
    assert [each["labels"]["project"] for each in found] == ["zlib", "\x1b[2Jgone\nok"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--policy", "inlinr"),
            "no session of the policy 'inlinr'; did you mean 'inliner'? it has a-policy-of-a-long",
        ),
        (("--status", "okay"), "no session with the status 'okay'; did you mean 'ok'? it has ok"),
        (("--label", "projekt=zlib"), "no session with a label 'projekt'; did you mean 'project'? it has about, "),
    ],
)
def test_a_mistyped_filter_is_told_with_what_there_is(ledger: Path, words: tuple[str, str], said: str) -> None:
    refused = listed(ledger, *words)
    assert (refused.returncode, refused.stdout, said in refused.stderr) == (2, "", True), refused.stderr


def test_each_word_of_the_column_status_finds_the_sessions_that_have_it(ledger: Path) -> None:
    for status, project in (("ok", "zlib"), ("open", "\x1b[2Jgone\nok")):
        found = [json.loads(line) for line in listed(ledger, "--json", "--status", status).stdout.splitlines()]
        assert [each["labels"]["project"] for each in found] == [project]


def test_a_reader_that_stops_reading_is_no_error(ledger: Path) -> None:
    assert unread("sessions", "list", "--ledger", ledger) == (0, "")


def test_a_filter_that_is_right_and_meets_nothing_gives_an_empty_table(ledger: Path) -> None:
    empty = listed(ledger, "--policy", "inliner", "--since", "1m")
    assert (empty.returncode, len(empty.stdout.splitlines()), empty.stderr) == (0, 1, "")

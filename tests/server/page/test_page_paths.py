"""What the web page asks for: who may, and what comes of questions that make no sense."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
import numpy as np
import pytest

from policybridge_client.connection import connect
from policybridge_serdes import (
    ElementType,
    Exploration,
    Outcome,
    PolicyReference,
    SessionOptions,
    Signature,
    TensorSpec,
    pack,
)
from policybridge_server.page.runs import ShownIteration, ShownProject, ShownRun, write_run
from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python

SIGNATURE = Signature.of(
    [TensorSpec("x", ElementType.DOUBLE, (40,)), TensorSpec("n", ElementType.INT64)],
    TensorSpec("choice", ElementType.INT64),
)
HOSTILE = "<script>alert('1')</script>\u202e\".c"
READ, EVALUATE = "r" * 32, "e" * 32
TOKENS = f'[reader]\ntoken = "{READ}"\nscopes = ["read"]\n[compiler]\ntoken = "{EVALUATE}"\nscopes = ["evaluate"]\n'


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


def asked(server: RunningServer, path: str, **headers: str) -> Answer:
    """Ask for a path with these headers."""
    connection = http.client.HTTPConnection(server.others[1].removeprefix("http:"), timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    data, told = answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    connection.close()
    return Answer(answer.status, json.loads(data) if "json" in told["content-type"] else data.decode(), told)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    scores = 'advice = {name = "scores", type = "float", shape = [1, 3]}\n[head]\nadvice = "choice"\n'
    write_python(folder / "policies", "chooser", answering("[[1.0, 3.0, 2.0]]"), scores)
    (folder / "tokens.toml").write_text(TOKENS)
    (folder / "tokens.toml").chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    serve = ("--http", "127.0.0.1:0", "--ledger", folder / "runs.db")
    with running_server(folder / "policies", folder, *serve) as running:
        yield running


@pytest.fixture(scope="module")
def session(server: RunningServer) -> str:
    """Make a session of hostile names and numbers; give its id."""
    options = SessionOptions(HOSTILE, labels={HOSTILE: HOSTILE}, exploration=Exploration(temperature=1.0))
    row = pack(SIGNATURE.features, {"x": [np.nan, np.inf, *range(38)], "n": 2**62})
    with connect(server.socket, timeout=60).open(PolicyReference("chooser"), SIGNATURE, options) as opened:
        for _ in range(3):
            opened.evaluate(row)
        opened.report(Outcome({"text": 1e300}, "ok"))
        return opened.id


def test_a_session_comes_with_its_decisions_and_with_numbers_that_a_browser_can_hold(
    server: RunningServer, session: str
) -> None:
    found = asked(server, f"/page/sessions/{session[:20]}?from=2&count=1").body
    assert (found["session"]["file"], found["session"]["labels"]) == (HOSTILE, {HOSTILE: HOSTILE})
    assert found["session"]["outcome"] == {"status": "ok", "values": {"text": 1e300}}
    (decision,) = found["decisions"]
    assert decision["step"] == 2
    assert decision["log_probability"] < 0
    observation = decision["observation"]
    assert observation["x"] == ["nan", "inf", *map(float, range(30)), "… 8 more"]
    assert observation["n"] == str(2**62)
    listed = asked(server, f"/page/sessions?status=ok&label={quote(f'{HOSTILE}={HOSTILE}')}").body
    assert [each["id"] for each in listed] == [session]
    assert asked(server, f"/page/sessions?before={listed[0]['number']}").body == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/page/sessions?version=one", 400),
        ("/page/sessions?version=1e3", 400),
        ("/page/sessions?label=x", 400),
        ("/page/sessions?before=-1", 400),
        ("/page/sessions?count=99999999999999999999", 400),
        ("/page/sessions/none", 404),
        ("/page/sessions/%25", 404),
        ("/page/sessions/x?from=%00", 400),
        ("/page/rollouts/chooser", 404),
        ("/page/rollouts/nobody", 404),
        ("/page/nothing", 404),
    ],
)
def test_a_question_that_makes_no_sense_is_told_so(server: RunningServer, path: str, status: int) -> None:
    answer = asked(server, path)
    assert (answer.status, bool(answer.body["error"])) == (status, True)


def test_a_browser_may_run_nothing_but_the_page_itself(server: RunningServer) -> None:
    page = asked(server, "/")
    rules = dict(rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].startswith("'sha256-")
    assert rules["frame-ancestors"] == "'none'"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "innerHTML" not in page.body
    assert "http" not in page.body.replace("http://www.w3.org/2000/svg", "")
    assert asked(server, "/", Host="evil.example").status == 403
    assert asked(server, "/page/state", Host="evil.example").status == 403


def test_a_server_without_a_ledger_shows_what_runs_and_says_what_is_missing(folder: Path, tmp_path: Path) -> None:
    with running_server(folder / "policies", tmp_path, "--http", "127.0.0.1:0") as running:
        state = asked(running, "/page/state").body
        assert (state["ledger"], state["policies"][0]["name"], state["policies"][0]["latest"]) == (False, "chooser", 1)
        refused = asked(running, "/page/ledger")
        assert (refused.status, "--ledger" in refused.body["error"]) == (400, True)


def test_the_page_is_free_and_its_data_need_a_token_that_may_read(folder: Path, tmp_path: Path) -> None:
    serve = ("--http", "127.0.0.1:0", "--tokens", folder / "tokens.toml")
    with running_server(folder / "policies", tmp_path, *serve) as running:
        assert asked(running, "/").status == 200
        assert asked(running, "/page/state").status == 401
        assert asked(running, "/page/state", Authorization=f"Bearer {EVALUATE}").status == 403
        assert asked(running, "/page/state", Authorization=f"Bearer {READ}").status == 200


def test_training_runs_are_shown_as_far_as_they_are_and_a_damaged_one_says_so(folder: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("first", "damaged", "huge", "none"):
        (runs / name).mkdir(parents=True)
    iterations = [ShownIteration(0, 1, 5, 2.5, {"text": 0.0}), ShownIteration(1, 2, 9, 4.5, {"text": -0.02})]
    run = ShownRun(HOSTILE, {"seed": "1"}, iterations, 2, [ShownProject("zlib", "text", 100.0, 98.0)])
    write_run(run, runs / "first")
    (runs / "damaged" / "run.json").write_text('{"title": 1}')
    (runs / "huge" / "run.json").write_bytes(b" " * (5 << 20))
    serve = ("--http", "127.0.0.1:0", "--runs", runs, "--runs", tmp_path / "not there")
    with running_server(folder / "policies", tmp_path, *serve) as running:
        found = {each["name"]: each for each in asked(running, "/page/runs").body}
    assert found.keys() == {"first", "damaged", "huge"}
    assert msgspec.convert(found["first"]["run"], ShownRun) == run
    assert "cannot be read" in found["damaged"]["error"]
    assert "larger" in found["huge"]["error"]

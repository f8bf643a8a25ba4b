"""Decisions that a client makes by the policy's form, and reports in bulk."""

import os
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from policybridge_bench.network import SIGNATURE
from policybridge_client.connection import connect
from policybridge_client.contract import FormReference, FormSession
from policybridge_client.form_cache import FormCache
from policybridge_client.local import LocalSession, decide_here
from policybridge_core.digest import content_digest
from policybridge_core.errors import (
    InvalidError,
    NotFoundError,
    PolicyBridgeError,
    PreconditionError,
    UnavailableError,
    UnsupportedError,
)
from policybridge_forms import Form
from policybridge_serdes import Outcome, PolicyReference, SessionOptions
from policybridge_serdes.interactive import MOST_DECIDED
from tests.conftest import running_server
from tests.repositories import answering, write_python
from tests.server.ledger.asking import ask, await_forms, open_network, rows
from tests.server.ledger.conftest import Recording
from tests.server.ledger.test_writer import within
from tests.serving import started

METRIC = "policybridge_client_decisions_total"

EVALUATES = SessionOptions("main.c", evaluates=True)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep forms in a folder of the test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "policybridge" / "forms"


@pytest.fixture(autouse=True, scope="module")
def _made(recording: Recording) -> None:
    for policy in ("network", "choosing"):
        await_forms(recording.server.socket, policy)


def open_forms(address: str, options: SessionOptions = EVALUATES, policy: str = "network") -> FormSession:
    session = open_network(address, options, policy)
    assert isinstance(session, FormSession)
    return session


def open_local(address: str, options: SessionOptions = EVALUATES) -> LocalSession:
    session = decide_here(open_network(address, options), SIGNATURE)
    assert isinstance(session, LocalSession)
    return session


def payload(count: int, advice: int = 0) -> bytes:
    observations = b"".join(row.tobytes() for row in rows(count))
    return observations + np.full(count, advice, "<i8").tobytes()


def test_decisions_of_the_client_are_those_of_the_server_and_are_kept_alike(recording: Recording, address: str) -> None:
    asked = rows(1500)
    with open_network(address) as session:
        answers = ask(session, asked)
    with open_local(address) as local:
        made = ask(local, asked[:700])
        local.context("f")
        made += ask(local, asked[700:])
        local.report(Outcome({"text": 128.0}, "ok"))
        assert local.lost is None
    assert made == answers
    with recording.reader() as reader:
        found = reader.session(local.id)
        (batch,) = reader.trajectory(found).batches
    assert found.policy == session.policy
    assert found.labels == {"evaluated": "client"}
    assert found.outcome == Outcome({"text": 128.0}, "ok")
    assert (found.decisions, found.lost) == (1500, 0)
    assert batch.observations.tobytes() == b"".join(row.tobytes() for row in asked)
    assert batch.advices.tobytes() == answers
    assert batch.contexts.tolist() == ["main.c"] * 700 + ["f"] * 800 if "grpc" in address else True
    assert batch.contexts[700:].tolist() == ["f"] * 800


def test_a_form_is_sent_once_to_all_clients_of_a_user(cache: Path, address: str) -> None:
    open_local(address).close()
    (file,) = cache.iterdir()
    session = open_forms(address)
    (form,) = session.forms.values()
    assert (file.name, file.stat().st_size) == (form.digest.removeprefix("sha256:"), form.size)
    again = decide_here(session, SIGNATURE)
    assert isinstance(again, LocalSession)
    # The session can still ask for it, so this client has not.
    assert session.form(form) == file.read_bytes()
    again.close()


def test_a_form_that_somebody_has_changed_in_the_cache_is_not_used(cache: Path, address: str) -> None:
    open_local(address).close()
    (file,) = cache.iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with open_local(address) as local:
        assert len(ask(local, rows(1))) == 8
    assert file.read_bytes() == content


def test_a_cache_that_others_can_write_is_not_used(cache: Path, address: str) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with open_local(address) as local:
        ask(local, rows(1))
    assert not list(cache.iterdir())


@pytest.mark.parametrize("name", ["../secret", "/dev/zero", "{secret}", ""])
def test_a_digest_of_a_server_is_no_path_of_its_choice(cache: Path, tmp_path: Path, name: str) -> None:
    secret = tmp_path / "policybridge" / "secret"
    cache.mkdir(parents=True)
    secret.write_bytes(b"form")
    assert FormCache().find(f"sha256:{name.format(secret=secret)}") is None


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "too large"])
def test_what_is_no_file_of_a_form_in_the_cache_is_not_read(cache: Path, tmp_path: Path, kind: str) -> None:
    form = b"form"
    cache.mkdir(parents=True, mode=0o700)
    file = cache / content_digest(form).removeprefix("sha256:")
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "link":
        (tmp_path / "elsewhere").write_bytes(form)
        file.symlink_to(tmp_path / "elsewhere")
    elif kind == "folder":
        file.mkdir()
    else:
        with file.open("wb") as large:
            large.write(form)
            large.truncate(1 << 40)
    assert FormCache().find(content_digest(form)) is None


def test_the_oldest_forms_make_room_for_new_ones(cache: Path) -> None:
    kept = FormCache(limit=250)
    forms = [bytes([number]) * 100 for number in range(3)]
    for age, form in enumerate(forms):
        kept.keep(form)
        os.utime(cache / content_digest(form).removeprefix("sha256:"), (age, age))
    kept.keep(bytes(50))
    assert [kept.find(content_digest(form)) for form in forms] == [None, forms[1], forms[2]]


def test_a_form_of_the_wrong_digest_ends_the_session(address: str) -> None:
    session = open_forms(address)
    (form,) = session.forms.values()
    session.forms[""] = FormReference("sha256:" + "0" * 64, form.size)  # type: ignore[index]
    with pytest.raises(NotFoundError, match="has no form"):
        decide_here(session, SIGNATURE)


def test_a_client_that_cannot_evaluate_gets_no_form(address: str) -> None:
    with closing(open_forms(address, SessionOptions())) as session:
        assert session.forms == {}
        with pytest.raises(PolicyBridgeError, match="has no form"):
            session.form(FormReference("sha256:00", 1))


def test_the_form_of_another_version_is_not_given(address: str) -> None:
    with closing(open_forms(address, policy="choosing")) as other:
        (form,) = other.forms.values()
    with closing(open_forms(address)) as session, pytest.raises(NotFoundError, match="has no form"):
        session.form(form)


def test_a_policy_without_a_form_is_asked_as_before(address: str) -> None:
    with connect(address).open(PolicyReference("first"), SIGNATURE, EVALUATES) as session:
        assert decide_here(session, SIGNATURE) is session
        assert len(ask(session, rows(3))) == 24


def test_a_form_is_given_once_in_a_session(address: str) -> None:
    session = open_forms(address)
    (form,) = session.forms.values()
    assert Form.read(session.form(form)).digest == session.policy.digest
    with pytest.raises(PreconditionError, match="already"):
        session.form(form)


@pytest.mark.parametrize(
    ("count", "sent", "fault"),
    [
        (2, payload(2)[:-1], "bytes"),
        (2, payload(2) + b"\0", "bytes"),
        (0, b"", "decided|1 to 1024"),
        (MOST_DECIDED + 1, payload(MOST_DECIDED + 1), "decided|1 to 1024"),
        (1, payload(2), "bytes"),
    ],
)
def test_a_report_that_lies_about_its_size_ends_its_session_alone(
    address: str, count: int, sent: bytes, fault: str
) -> None:
    session = open_forms(address)
    session.decided(count, 0, sent)
    with pytest.raises(PolicyBridgeError, match=fault):
        # Over the socket the rest of a message that is too short may come with the next one.
        session.report(Outcome({"text": 1.0}))
    with open_network(address) as other:
        assert ask(other, rows(1))


def test_an_advice_that_is_no_choice_of_the_policy_ends_the_session(address: str) -> None:
    with connect(address).open(PolicyReference("choosing"), SIGNATURE, EVALUATES) as session:
        assert isinstance(session, FormSession)
        session.decided(2, 0, payload(2, advice=7))
        with pytest.raises(InvalidError, match="one of 0 to 1"):
            session.report(Outcome())


def counted_of(
    policies: Path, tmp_path: Path, messages: Sequence[int], asks: int = 0, *, goes: bool = False
) -> dict[str, int]:
    """Report wrong advices in messages of these numbers of decisions, and ask; give the server's counts by result.

    With ``goes`` the client goes away without a word; else it reports an outcome, which the server refuses.
    """
    words = ("--repository", policies, "--allow-python", "--socket", tmp_path / "s", "--http", "127.0.0.1:0")
    with started(*words, log=tmp_path / "log") as (_, addresses):
        await_forms(f"socket:{tmp_path / 's'}")
        http = next(each for each in addresses if each.startswith("http:")).replace("http:", "http://")
        with closing(open_forms(f"socket:{tmp_path / 's'}")) as session:
            for count in messages:
                session.decided(count, 0, payload(count, advice=5))
            ask(session, rows(asks))
            if goes:
                session.close()
            else:
                with pytest.raises(UnsupportedError):
                    session.report(Outcome())
            # One of each message of 64 is drawn, and the last ones are made again a little later.
            drawn = sum(count >= 64 for count in messages)
            assert within(60, lambda: counts_at(http).get("checked", 0) >= drawn)
            return counts_at(http)


def counts_at(http: str) -> dict[str, int]:
    text = urllib.request.urlopen(f"{http}/metrics", timeout=60).read().decode()
    families = text_string_to_metric_families(text)
    samples = [each for family in families for each in family.samples if each.value]
    return {each.labels["result"]: int(each.value) for each in samples if each.name == METRIC}


def test_a_client_that_reports_other_advice_is_counted_and_told(policies: Path, tmp_path: Path) -> None:
    assert counted_of(policies, tmp_path, [64]) == {"reported": 64, "checked": 1, "differing": 1}
    assert "reported another advice" in (tmp_path / "log").read_text()


def test_one_of_each_large_message_is_made_again_also_of_those_after_the_last_eight(
    policies: Path, tmp_path: Path
) -> None:
    assert counted_of(policies, tmp_path, [64] * 21) == {"reported": 1344, "checked": 21, "differing": 21}


def test_the_sample_of_a_client_that_goes_away_is_made_again(policies: Path, tmp_path: Path) -> None:
    assert counted_of(policies, tmp_path, [64] * 3, goes=True) == {"reported": 192, "checked": 3, "differing": 3}


def test_what_a_client_with_a_form_asks_for_is_counted(policies: Path, tmp_path: Path) -> None:
    assert counted_of(policies, tmp_path, [], asks=3) == {"asked": 3}


@pytest.mark.parametrize(
    ("steps", "labels"),
    [
        ("asked asked", {"commit": "1"}),
        ("asked reported", {"commit": "1", "evaluated": "client"}),
        ("reported asked", {"commit": "1", "evaluated": "client"}),
        ("", {"commit": "1", "evaluated": "client"}),
    ],
)
def test_the_record_of_a_session_says_whether_its_client_decided(
    recording: Recording, address: str, steps: str, labels: dict[str, str]
) -> None:
    with closing(open_forms(address, SessionOptions("main.c", labels={"commit": "1"}, evaluates=True))) as session:
        for step in steps.split():
            if step == "asked":
                ask(session, rows(1))
            else:
                session.decided(1, 0, payload(1))
            # The ledger has written the labels so far.
            session.report(Outcome())
        session.report(Outcome())
    with recording.reader() as reader:
        assert reader.session(session.id).labels == labels


def test_of_short_reports_a_sample_is_made_again(policies: Path, tmp_path: Path) -> None:
    # That none of these is drawn has a chance of one in a hundred million.
    counts = counted_of(policies, tmp_path, [3] * 400)
    assert counts["reported"] == 1200
    assert 0 < counts["checked"] == counts["differing"] < 400


def test_decisions_go_on_without_a_server_by_the_version_they_began_with(policies: Path, tmp_path: Path) -> None:
    asked = rows(64)
    with running_server(policies, tmp_path) as server:
        with open_network(server.socket) as session:
            answers = ask(session, asked)
        await_forms(server.socket)
        local = open_local(server.socket)
        made = ask(local, asked[:10])
        server.kill()
        made += ask(local, asked[10:])
        assert made == answers
        with pytest.raises(UnavailableError):
            local.report(Outcome())
        local.close()


def test_no_forms_are_given_if_the_operator_says_so(policies: Path, tmp_path: Path) -> None:
    with running_server(policies, tmp_path, "--no-forms") as server, closing(open_forms(server.socket)) as session:
        assert session.forms == {}
        assert decide_here(session, SIGNATURE) is session


def test_a_server_of_policies_in_python_loads_no_onnx_runtime_for_clients_that_may_decide(tmp_path: Path) -> None:
    write_python(tmp_path / "policies", "first", answering("[0]"))
    with running_server(tmp_path / "policies", tmp_path) as server:
        with connect(server.socket).open(PolicyReference("first"), SIGNATURE, EVALUATES) as session:
            assert len(ask(session, rows(1))) == 8
        mapped = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "onnxruntime" not in mapped

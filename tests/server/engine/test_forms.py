"""The forms of a version are made beside the sessions that want them."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from policybridge_bench.network import SIGNATURE, observations, write_network
from policybridge_serdes import PolicyReference, SessionOptions
from policybridge_serdes.interactive import Decided
from policybridge_server.engine import batcher, pace
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.forms import NO_FORMS, FormFile, Forms
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.engine.session import Session
from policybridge_server.loop import Loop
from policybridge_server.repository import Repository, StoredVersion
from tests.conftest import running_server
from tests.server.ledger.test_writer import within
from tests.server.publishing.steps import Silent, until

FORMS = Forms({"": FormFile.of(b"a form")})


def opening(folder: Path, steps: Callable[[SessionOpener], Coroutine[None, None, None]]) -> None:
    write_network(folder, "network")
    engine = Engine(Repository([folder]), allow_python=False)

    async def run() -> None:
        engine.attach(asyncio.get_running_loop())
        await steps(SessionOpener(engine))

    with closing(engine), asyncio.Runner(loop_factory=lambda: Loop(engine.flush, 0.0)) as runner:
        runner.run(run())


async def opened(opener: SessionOpener) -> Session:
    return await opener.open(PolicyReference("network"), SessionOptions(evaluates=True), Silent())


def test_a_session_does_not_wait_for_forms_that_take_long(tmp_path: Path) -> None:
    asked, may_end = threading.Event(), threading.Event()

    def make(_: StoredVersion) -> Forms:
        asked.set()
        may_end.wait(60)
        return FORMS

    async def steps(opener: SessionOpener) -> None:
        opener.make_forms = make
        session = await opened(opener)
        assert asked.is_set()
        assert session.forms is None
        assert session.view.labels == {}
        may_end.set()
        await until(lambda: session.loaded.forms is FORMS)
        assert (await opened(opener)).forms is FORMS

    opening(tmp_path, steps)


def test_decisions_of_a_client_wait_at_every_eighth_that_is_to_be_made_again(tmp_path: Path) -> None:
    async def steps(opener: SessionOpener) -> None:
        opener.make_forms = lambda _: FORMS
        session = await opened(opener)
        session.bind(SIGNATURE)
        taken: list[int] = []
        payload = b"".join(row.tobytes() for row in observations(64, 1)) + bytes(8 * 64)
        for number in range(8):
            session.decided(Decided(64, 0, payload), partial(taken.append, number))
        # A client could send messages without end, faster than the model makes one decision of each.
        assert taken == list(range(7))
        assert session.loaded.counters.checked == 0
        opener.engine.flush()
        assert taken == list(range(8))
        assert session.loaded.counters.checked == 8

    opening(tmp_path, steps)


async def ended(opener: SessionOpener, messages: int) -> Session:
    """Open a session, report messages of 64 decisions, one of which the server draws, and end it."""
    session = await opened(opener)
    session.bind(SIGNATURE)
    payload = b"".join(row.tobytes() for row in observations(64, 1)) + bytes(8 * 64)
    for _ in range(messages):
        session.decided(Decided(64, 0, payload), lambda: None)
    session.close()
    return session


def test_what_is_left_of_the_samples_of_several_sessions_is_made_again_as_one_batch_after_their_ends(
    tmp_path: Path,
) -> None:
    async def steps(opener: SessionOpener) -> None:
        opener.make_forms = lambda _: FORMS
        for _ in range(3):
            session = await ended(opener, 3)
        counters = session.loaded.counters
        assert counters.checked == 0
        # No signature is left that the next version must take.
        assert session.loaded.clients() == []
        del session
        await until(lambda: counters.checked == 9)
        assert sum(counters.batches.buckets) == 1

    opening(tmp_path, steps)


def test_what_is_left_of_samples_waits_for_no_more_than_some_sessions(tmp_path: Path) -> None:
    async def steps(opener: SessionOpener) -> None:
        opener.make_forms = lambda _: FORMS
        for _ in range(16):
            session = await ended(opener, 3)
        opener.engine.flush()
        assert session.loaded.counters.checked >= 32

    opening(tmp_path, steps)


def test_what_is_left_of_samples_is_made_again_before_their_version_is_unloaded(tmp_path: Path) -> None:
    async def steps(opener: SessionOpener) -> None:
        opener.make_forms = lambda _: FORMS
        counters = (await ended(opener, 3)).loaded.counters
        assert counters.checked == 0
        opener.engine.close()
        assert counters.checked == 3
        assert counters.differing < 3
        opener.engine.flush()
        assert sum(counters.batches.buckets) == 1

    opening(tmp_path, steps)


def test_forms_are_made_ahead_one_version_after_the_other_and_a_session_waits_for_its_own_alone(
    tmp_path: Path,
) -> None:
    may_end, made, at_once = threading.Event(), list[str](), [0]

    def make(stored: StoredVersion) -> Forms:
        made.append(stored.policy.name)
        at_once[0] += 1
        if stored.policy.name == "a":
            may_end.wait(60)
        at_once[0] -= 1
        return FORMS

    async def steps(opener: SessionOpener) -> None:
        opener.make_forms = make
        opener.may_have_forms = lambda stored: stored.policy.name != "none"
        ahead = asyncio.create_task(opener.make_forms_ahead())
        loaded = [await opener.version(PolicyReference(name)) for name in ("none", "a", "b", "c")]
        await until(lambda: made == ["a"])
        session = await opener.open(PolicyReference("c"), SessionOptions(evaluates=True), Silent())
        assert session.forms is FORMS
        assert (made, at_once) == (["a", "c"], [1])
        may_end.set()
        await until(lambda: loaded[2].forms is FORMS)
        assert made == ["a", "c", "b"]
        # Nobody has wanted any of these; what may have none is left alone.
        assert [each.forms for each in loaded] == [None, FORMS, FORMS, FORMS]
        ahead.cancel()

    for name in ("none", "a", "b", "c"):
        write_network(tmp_path, name)
    opening(tmp_path, steps)


def test_a_version_that_comes_later_gets_its_forms_ahead_too_and_one_whose_forms_fail_costs_no_other(
    tmp_path: Path,
) -> None:
    def make(stored: StoredVersion) -> Forms:
        if stored.policy.name == "a":
            raise RuntimeError("no memory")
        return FORMS

    async def steps(opener: SessionOpener) -> None:
        opener.make_forms, opener.may_have_forms = make, lambda _: True
        ahead = asyncio.create_task(opener.make_forms_ahead())
        for name, forms in (("a", NO_FORMS), ("b", FORMS)):
            loaded = await opener.version(PolicyReference(name))
            await until(lambda: loaded.forms is forms)  # noqa: B023 - it is called in this turn
        ahead.cancel()
        with suppress(asyncio.CancelledError):
            await ahead
        # A load after the end wakes nobody.
        assert (await opener.version(PolicyReference("c"))).making is None

    for name in ("a", "b", "c"):
        write_network(tmp_path, name)
    opening(tmp_path, steps)


def test_a_server_makes_forms_before_a_client_wants_one(tmp_path: Path) -> None:
    write_network(tmp_path / "policies", "network")
    with running_server(tmp_path / "policies", tmp_path) as server:
        maps = Path(f"/proc/{server.process.pid}/maps")
        assert within(120, lambda: "onnx_cpp2py" in maps.read_text())


def test_forms_are_made_once_for_sessions_that_open_together(tmp_path: Path) -> None:
    made = []

    def make(stored: StoredVersion) -> Forms:
        made.append(stored)
        return FORMS

    async def steps(opener: SessionOpener) -> None:
        opener.make_forms = make
        sessions = await asyncio.gather(*(opened(opener) for _ in range(5)))
        assert [session.forms for session in sessions] == [FORMS] * 5
        assert len(made) == 1

    opening(tmp_path, steps)


def test_a_version_whose_forms_cannot_be_made_is_asked(tmp_path: Path) -> None:
    def make(_: StoredVersion) -> Forms:
        raise RuntimeError("no memory")

    async def steps(opener: SessionOpener) -> None:
        opener.make_forms = make
        session = await opened(opener)
        assert session.forms is None
        assert session.loaded.forms is NO_FORMS

    opening(tmp_path, steps)


def test_what_is_left_of_samples_is_made_again_though_the_model_has_moved_to_a_worker_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each batch is slow, and the first slow one moves the model.
    monkeypatch.setattr(batcher, "_INLINE", 0)
    monkeypatch.setattr(pace, "_TOLERATED_SECONDS", -1.0)

    async def steps(opener: SessionOpener) -> None:
        opener.make_forms = lambda _: FORMS
        counters = (await ended(opener, 3)).loaded.counters
        session = await opened(opener)
        session.bind(SIGNATURE)
        session.submit(observations(1, 1)[0].tobytes())
        opener.engine.flush()
        assert (counters.checked, counters.decisions) == (0, 1)
        opener.engine.close()
        await until(lambda: counters.checked == 3)

    opening(tmp_path, steps)


def test_what_waits_and_what_is_left_of_samples_is_made_though_the_model_is_freed_while_its_worker_has_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher, "_INLINE", 0)
    monkeypatch.setattr(pace, "_TOLERATED_SECONDS", -1.0)

    async def steps(opener: SessionOpener) -> None:
        opener.make_forms = lambda _: FORMS
        counters = (await ended(opener, 3)).loaded.counters
        session = await opened(opener)
        session.bind(SIGNATURE)
        # The first moves the model, the worker has the second, and the third waits for its result.
        for _ in range(3):
            session.submit(observations(1, 1)[0].tobytes())
            opener.engine.flush()
        assert (counters.checked, counters.decisions) == (0, 1)
        opener.engine.close()
        await until(lambda: (counters.checked, counters.decisions) == (3, 6))

    opening(tmp_path, steps)

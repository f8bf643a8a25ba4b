"""The loop: what threads and signals ask of it."""

import asyncio
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from policybridge_server.counters import Counters
from policybridge_server.loop import AwakeWaits, Loop


def test_a_signal_is_heeded_though_very_many_calls_of_threads_come_before_it() -> None:
    called: list[int] = []

    async def work() -> None:
        loop, heeded = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, heeded.set)
        thread = threading.Thread(
            target=lambda: [loop.call_soon_threadsafe(called.append, number) for number in range(5_000)]
        )
        thread.start()
        # The loop is held: nothing of that is taken yet.
        thread.join()
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(heeded.wait(), 60)

    with asyncio.Runner(loop_factory=lambda: cast("asyncio.AbstractEventLoop", Loop(lambda: 0))) as runner:
        runner.run(work())
    assert called == list(range(5_000))


def test_what_threads_post_is_called_on_the_loops_thread_in_order_and_an_error_costs_no_other_call() -> None:
    called: list[tuple[int, int]] = []
    told: list[dict[str, Any]] = []

    def call(number: int) -> None:
        if number == 7:
            raise ValueError(number)
        called.append((number, threading.get_ident()))

    async def work() -> None:
        loop, over = cast("Loop", asyncio.get_running_loop()), asyncio.Event()
        loop.set_exception_handler(lambda _, context: told.append(context))

        def post() -> None:
            for number in range(5_000):
                loop.post(call, number)
            loop.post(over.set)

        thread = threading.Thread(target=post)
        thread.start()
        # The loop sleeps until the first call comes.
        await asyncio.wait_for(over.wait(), 60)
        thread.join()

    with asyncio.Runner(loop_factory=lambda: cast("asyncio.AbstractEventLoop", Loop(lambda: 0))) as runner:
        runner.run(work())
    assert called == [(number, threading.get_ident()) for number in range(5_000) if number != 7]
    assert [str(each["exception"]) for each in told] == ["7"]


def test_a_call_that_posts_another_one_keeps_no_turn_from_its_end() -> None:
    counters = Counters()

    async def work() -> None:
        loop, left, over = cast("Loop", asyncio.get_running_loop()), [50], asyncio.Event()

        def again() -> None:
            left[0] -= 1
            if left[0]:
                loop.post(again)
            else:
                over.set()

        loop.post(again)
        await asyncio.wait_for(over.wait(), 60)

    with asyncio.Runner(
        loop_factory=lambda: cast("asyncio.AbstractEventLoop", Loop(lambda: 0, counters=counters))
    ) as runner:
        runner.run(work())
    assert sum(counters.turns.buckets) >= 50


def test_nothing_can_be_posted_to_a_closed_loop() -> None:
    loop = Loop(lambda: 0)
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.post(print)


def test_a_large_read_takes_what_has_come_and_keeps_nothing_of_an_earlier_one() -> None:
    loop = Loop(lambda: 0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        for sent in (b"long ago " * 1000, b"new", b""):
            theirs.sendall(sent) if sent else theirs.close()
            assert loop.read(ours.fileno()) == sent
    loop.close()


def test_after_waits_in_vain_the_loop_stays_awake_less_and_less_often_down_to_once_in_64_answers() -> None:
    waits = AwakeWaits()

    def decisions_until_next() -> int:
        return next(number for number in range(1, 1000) if waits.is_next())

    for expected in (1, 2, 4, 8, 16, 32, 64, 64, 64):
        assert decisions_until_next() == expected
        waits.ended(arrived=False)
    assert decisions_until_next() == 64
    for _ in range(2):
        waits.ended(arrived=True)
        assert decisions_until_next() == 1


def test_a_loop_that_waits_takes_no_turns() -> None:
    counters = Counters()
    with asyncio.Runner(
        loop_factory=lambda: cast("asyncio.AbstractEventLoop", Loop(lambda: 0, counters=counters))
    ) as runner:
        runner.run(asyncio.sleep(0.05))
    assert sum(counters.turns.buckets) < 50


class Question:
    """Arrives in a pipe when the loop has nothing to do and gives its core away instead of sleeping."""

    def __init__(self) -> None:
        self.awake = 0
        self.taken = asyncio.Event()
        self.reading, self.writing = os.pipe()

    def yielded(self) -> None:
        """Stand for os.sched_yield."""
        self.awake += 1
        os.write(self.writing, b"?")

    def ready(self, _: int) -> None:
        """Take the question."""
        os.read(self.reading, 1)
        self.taken.set()


def run_after(answered: int, spin: float, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` on a loop whose first turn answered so many observations, and later ones none."""
    answers = [answered]
    loop = Loop(lambda: answers.pop() if answers else 0, spin)
    with asyncio.Runner(loop_factory=lambda: cast("asyncio.AbstractEventLoop", loop)) as runner:
        runner.run(work)


@pytest.mark.parametrize(
    ("answered", "spin", "cores", "awake"),
    [(1, 3600, 2, True), (2, 3600, 2, False), (0, 3600, 2, False), (1, 0, 2, False), (1, 3600, 1, False)],
    ids=["lone", "two", "none", "off", "single core"],
)
def test_the_loop_stays_awake_after_a_lone_answer_alone_and_never_on_a_single_core(
    answered: int, spin: float, cores: int, awake: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = Question()
    monkeypatch.setattr(os, "sched_yield", question.yielded)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))

    async def work() -> None:
        cast("Loop", asyncio.get_running_loop()).watch(question.reading, question)
        await (asyncio.wait_for(question.taken.wait(), 60) if awake else asyncio.sleep(0.05))

    run_after(answered, spin, work())
    assert question.awake == (1 if awake else 0)
    assert question.taken.is_set() == awake
    os.close(question.reading)
    os.close(question.writing)


def test_the_loop_sleeps_once_no_question_came_in_the_time_that_it_stays_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    awake = list[float]()
    monkeypatch.setattr(os, "sched_yield", lambda: awake.append(time.perf_counter()))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    began = time.perf_counter()
    run_after(1, 0.1, asyncio.sleep(0.001))
    # What is due in that time waits until the loop would sleep.
    assert time.perf_counter() - began >= 0.1
    assert len(awake) > 1


def test_the_loop_sleeps_again_after_four_events_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    question = Question()
    monkeypatch.setattr(os, "sched_yield", question.yielded)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    async def work() -> None:
        cast("Loop", asyncio.get_running_loop()).watch(question.reading, question)
        await asyncio.sleep(0.05)

    run_after(1, 3600, work())
    assert question.awake == 4
    os.close(question.reading)
    os.close(question.writing)


class _Takes:
    """A handler that calls ``take`` with the events."""

    def __init__(self, take: Callable[[int], object]) -> None:
        self._take = take

    def ready(self, events: int) -> None:
        self._take(events)


def test_a_file_that_is_watched_in_a_turn_gets_no_event_of_the_file_that_had_its_number() -> None:
    taken: list[int] = []

    async def work(left: socket.socket, right: socket.socket, new: socket.socket, far: socket.socket) -> None:
        loop, over = cast("Loop", asyncio.get_running_loop()), asyncio.Event()

        def replace(mine: socket.socket, other: socket.socket) -> None:
            """Put the new file in the place of the other one, whose client has hung up, too."""
            loop.unwatch(mine.fileno())
            loop.unwatch(other.fileno())
            os.dup2(new.fileno(), other.fileno())
            loop.watch(other.fileno(), _Takes(lambda events: take(other, events)))
            loop.call_soon(over.set)

        def take(file: socket.socket, events: int) -> None:
            taken.append(events)
            loop.unwatch(file.fileno())

        loop.watch(left.fileno(), _Takes(lambda _: replace(left, right)))
        loop.watch(right.fileno(), _Takes(lambda _: replace(right, left)))
        await asyncio.wait_for(over.wait(), 60)
        assert not taken
        far.send(b"x")
        while not taken:
            await asyncio.sleep(0)

    pairs = [socket.socketpair() for _ in range(3)]
    for _, theirs in pairs[:2]:
        theirs.close()
    with asyncio.Runner(loop_factory=lambda: cast("asyncio.AbstractEventLoop", Loop(lambda: 0))) as runner:
        runner.run(work(pairs[0][0], pairs[1][0], *pairs[2]))
    assert taken == [select.EPOLLIN]
    for each in (pairs[0][0], pairs[1][0], *pairs[2]):
        each.close()

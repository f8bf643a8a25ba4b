"""The loop: what threads and signals ask of it."""

import asyncio
import os
import signal
import threading
from typing import cast

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

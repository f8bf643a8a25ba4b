"""The share of a peer in the threads: how many jobs of it run at once, and in which order jobs of others come."""

import asyncio
import threading

import pytest

from policybridge_server.budget import Peers
from policybridge_server.budget.work import Threads, Work
from policybridge_server.loop import Loop
from tests.server.transports.conftest import run


class Jobs:
    """Jobs that wait until they are let go, and the names of those that have begun."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._begun = threading.Semaphore(0)
        self._let = threading.Semaphore(0)

    def job(self, name: str) -> str:
        self.begun.append(name)
        self._begun.release()
        assert self._let.acquire(timeout=60)
        return name

    async def have_begun(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self._begun.acquire, timeout=60)

    def let(self, count: int) -> None:
        self._let.release(count)


def test_a_peer_has_as_many_threads_as_it_leaves_free_and_others_find_the_rest(loop: Loop) -> None:
    async def work() -> None:
        threads, jobs = Threads(loop, "test", 4), Jobs()
        flood, second, third = (threads.of(name) for name in ("flood", "second", "third"))
        results = [flood.run(jobs.job, f"flood {number}") for number in range(100)]
        await jobs.have_begun(2)
        assert (flood.running, threads.free) == (2, 2)
        results += [second.run(jobs.job, "second 0"), second.run(jobs.job, "second 1")]
        await jobs.have_begun(1)
        assert (second.running, threads.free) == (1, 1)
        results.append(third.run(jobs.job, "third"))
        await jobs.have_begun(1)
        assert jobs.begun == ["flood 0", "flood 1", "second 0", "third"]
        jobs.let(103)
        assert sorted(await asyncio.gather(*results)) == sorted(jobs.begun)
        assert [name for name in jobs.begun if name.startswith("flood")] == [f"flood {number}" for number in range(100)]

    run(work(), loop)


def test_with_one_thread_each_peer_has_a_job_in_turn(loop: Loop) -> None:
    async def work() -> None:
        threads, jobs = Threads(loop, "test", 1), Jobs()
        jobs.let(106)
        flood = [threads.of("flood").run(jobs.job, "flood") for _ in range(100)]
        others = [threads.of(name).run(jobs.job, name) for name in ("a", "b", "c") for _ in range(2)]
        await asyncio.gather(*flood, *others)
        # The first job ran, and the second waited, before the others came.
        assert jobs.begun[:10] == ["flood", "flood", "a", "b", "c", "flood", "a", "b", "c", "flood"]

    run(work(), loop)


def test_a_job_that_raises_or_is_cancelled_frees_its_thread(loop: Loop) -> None:
    async def work() -> None:
        threads, jobs = Threads(loop, "test", 1), Jobs()
        share = threads.of("peer")
        running, fails, left, last = (
            share.run(jobs.job, "running"),
            share.run(int, "x"),
            share.run(jobs.job, "left out"),
            share.run(jobs.job, "last"),
        )
        left.cancel()
        running.cancel()
        jobs.let(2)
        with pytest.raises(ValueError, match="invalid literal"):
            await fails
        assert await last == "last"
        assert jobs.begun == ["running", "last"]
        while threads.free < 1:
            await asyncio.sleep(0)

    run(work(), loop)


def test_a_peer_that_closes_its_connections_has_no_new_share_while_its_jobs_run(loop: Loop) -> None:
    async def work() -> None:
        peers, jobs = Peers(loop, 1 << 20), Jobs()
        first = peers.of("192.0.2.1").work.run(jobs.job, "first")
        await jobs.have_begun(1)
        assert peers.of("192.0.2.1").work.running == 1
        assert peers.of("192.0.2.2").work.running == 0
        jobs.let(1)
        await first
        del first
        assert isinstance(peers.of("192.0.2.1").work, Work)

    run(work(), loop)

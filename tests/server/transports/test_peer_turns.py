"""The time of a peer in the turns of the loop: who gets how much of it, by the order of service."""

import asyncio
from itertools import pairwise

import pytest

from policybridge_server.budget import PeerBudget, Peers
from policybridge_server.loop import Loop
from tests.server.transports.conftest import run

MIB = 1 << 20


class Busy:
    """A connection that always has more to do: each turn costs it ``ms`` milliseconds of a clock."""

    def __init__(self, name: str, peer: PeerBudget, served: list[str]) -> None:
        self._name = name
        self._peer = peer
        self._served = served

    def resume(self) -> None:
        self._served.append(self._name)
        end = asyncio.get_running_loop().time() + self._peer.turns.slice
        while asyncio.get_running_loop().time() < end:
            pass
        self._peer.turns.again(self)


def test_connections_of_a_peer_with_work_left_are_served_in_turn_and_another_peer_once_in_each_turn(loop: Loop) -> None:
    peers = Peers(loop, MIB)
    served: list[str] = []

    async def work() -> None:
        flood, other = peers.of("192.0.2.1"), peers.of("192.0.2.2")
        for number in range(500):
            flood.turns.again(Busy(str(number), flood, served))
        other.turns.again(Busy("other", other, served))
        while served.count("499") < 2:
            await asyncio.sleep(0)

    run(work(), loop)
    floods = [name for name in served if name != "other"]
    assert floods == [str(number % 500) for number in range(len(floods))]
    places = [place for place, name in enumerate(served) if name == "other"]
    # 4 ms of a turn are 500 slices of 4 ms / 500; a slow clock makes them fewer, and never more than one each.
    assert max(after - before for before, after in pairwise(places)) <= 501
    assert len(places) >= len(floods) // 500
    assert len(places) <= len(floods) // 10


def test_of_one_peer_at_most_sixteen_requests_begin_in_a_turn_in_their_order_and_another_peers_in_the_same(
    loop: Loop,
) -> None:
    peers = Peers(loop, MIB)
    begun: list[str] = []

    async def request(peer: PeerBudget, name: str) -> None:
        await peer.turns.begin()
        begun.append(name)

    async def work() -> None:
        flood, other = peers.of("192.0.2.1"), peers.of("192.0.2.2")
        tasks = [asyncio.create_task(request(flood, str(number))) for number in range(100)]
        tasks[50].cancel()
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(request(other, "other"))]
        before, most = len(begun), 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            most, before = max(most, len(begun) - before), len(begun)
        assert most <= 17

    run(work(), loop)
    assert begun.index("other") <= 33
    begun.remove("other")
    assert begun == [str(number) for number in range(100) if number != 50]


def test_a_peer_with_one_request_after_the_other_waits_for_no_turn(loop: Loop) -> None:
    peer = Peers(loop, MIB).of("192.0.2.1")

    async def work() -> None:
        # More than may begin in one turn: those of the turns before do not count.
        for _ in range(40):
            begins = peer.turns.begin()
            with pytest.raises(StopIteration):  # Otherwise it waits.
                begins.send(None)
            await asyncio.sleep(0)

    run(work(), loop)


def test_all_connections_of_a_peer_have_the_same_budget_until_the_last_one_ends(loop: Loop) -> None:
    peers = Peers(loop, MIB)
    first, second = peers.of("user 1"), peers.of("user 1")
    assert first is second
    assert first is not peers.of("user 2")
    first.memory.take(5)
    del first, second
    assert peers.of("user 1").memory.held == 0

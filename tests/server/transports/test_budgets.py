"""The budget of a connection, and that of all connections together."""

import pytest

from policybridge_core.errors import TooLargeError
from policybridge_server.budget import FREE, Budget, Memory

MIB = 1 << 20


def test_what_is_reserved_for_a_connection_is_not_taken_from_all() -> None:
    memory = Memory(0)
    budget = Budget(MIB, memory)
    budget.take(FREE)
    assert (budget.held, memory.held) == (FREE, 0)
    with pytest.raises(TooLargeError, match="all clients together make the server hold 0 bytes"):
        budget.take(1)
    assert (budget.held, memory.held) == (FREE, 0)


def test_a_connection_takes_no_more_than_its_most_and_a_refused_request_counts_nothing() -> None:
    memory = Memory(100 * MIB)
    budget = Budget(2 * MIB, memory)
    budget.take(2 * MIB)
    held = memory.held
    assert 2 * MIB - FREE <= held <= 2 * MIB
    with pytest.raises(TooLargeError, match=f"hold more than {2 * MIB} bytes of requests and unread answers"):
        budget.take(1)
    assert (budget.held, budget.peak, memory.held) == (2 * MIB, 2 * MIB, held)


def test_of_all_connections_one_finds_no_room_until_another_one_gives_it_back() -> None:
    memory = Memory(4 * MIB)
    first, second = Budget(3 * MIB, memory), Budget(3 * MIB, memory)
    first.take(3 * MIB)
    with pytest.raises(TooLargeError, match="all clients together"):
        second.take(2 * MIB)
    assert (second.held, second.peak) == (0, 0)
    first.give(3 * MIB)
    assert memory.held == 0
    second.take(3 * MIB)
    second.give(3 * MIB)
    assert memory.held == 0


def test_of_what_a_connection_gives_back_most_is_given_to_all_and_small_changes_are_not() -> None:
    memory = Memory(100 * MIB)
    budget = Budget(50 * MIB, memory)
    budget.take(10 * MIB)
    held = memory.held
    budget.give(FREE)
    assert memory.held == held
    budget.give(5 * MIB)
    assert 4 * MIB < memory.held < 6 * MIB
    budget.take(6 * MIB)
    assert 10 * MIB < memory.held + FREE <= 11 * MIB + FREE
    budget.give(budget.held)
    assert (budget.held, memory.held) == (0, 0)


def test_what_a_connection_holds_is_counted_in_place_of_what_it_held() -> None:
    memory = Memory(4 * MIB)
    budget = Budget(3 * MIB, memory)
    for size in (MIB, 2 * MIB, 2 * MIB, 5, 0, 3 * MIB):
        budget.hold(size)
        assert budget.held == size
        assert size - FREE <= memory.held <= size + 5 * FREE
    with pytest.raises(TooLargeError):
        budget.hold(3 * MIB + 1)
    assert (budget.held, budget.peak) == (3 * MIB, 3 * MIB)

"""The budget of a connection, and that of all connections together."""

import os
import socket

import pytest

from policybridge_core.errors import TooLargeError
from policybridge_server.budget import FREE, Budget, Memory
from policybridge_server.transports.peers import peer_of

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


def test_a_peer_holds_as_much_as_it_leaves_free_over_all_its_connections() -> None:
    memory = Memory(100 * MIB)
    many = [Budget(50 * MIB, memory.of("10.0.0.1")) for _ in range(200)]
    for budget in many[:10]:
        budget.take(5 * MIB)
    for budget in many[10:]:
        with pytest.raises(TooLargeError, match=r"all clients of 10\.0\.0\.1 together make the server hold"):
            budget.take(5 * MIB)
    other = Budget(50 * MIB, memory.of("10.0.0.2"))
    other.take(20 * MIB)
    third = Budget(50 * MIB, memory.of("10.0.0.3"))
    third.take(10 * MIB)
    for budget in (*many, other, third):
        budget.give(budget.held)
    assert memory.held == 0


def test_the_connections_of_a_peer_share_one_part_of_the_memory_which_is_forgotten_with_the_last_of_them() -> None:
    memory = Memory(100 * MIB)
    first, second = Budget(MIB, memory.of("user 1")), Budget(MIB, memory.of("user 1"))
    first.take(MIB)
    second.take(MIB)
    assert memory.of("user 1").held == memory.held > MIB
    first.give(MIB)
    second.give(MIB)
    del first, second
    assert memory.of("user 1").held == 0


@pytest.mark.parametrize(
    ("family", "address", "peer"),
    [
        (socket.AF_INET, ("10.1.2.3", 4), "10.1.2.3"),
        (socket.AF_INET6, ("::ffff:10.1.2.3", 4, 0, 0), "10.1.2.3"),
        (socket.AF_INET6, ("2001:db8:1:2:3:4:5:6", 4, 0, 0), "2001:db8:1:2::/64"),
        (socket.AF_INET6, ("fe80::1%eth0", 4, 0, 2), "fe80::/64"),
    ],
)
def test_a_peer_is_an_ipv4_address_or_the_network_of_an_ipv6_address(
    family: socket.AddressFamily, address: tuple[object, ...], peer: str
) -> None:
    with socket.socket(family) as connection:
        assert peer_of(connection, address) == peer


def test_the_peer_on_a_unix_socket_is_the_user_of_its_process() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_of(ours, "") == f"user {os.getuid()}"


def test_a_peer_holds_no_more_than_it_leaves_free_whatever_the_number_of_its_connections() -> None:
    memory = Memory(8 * MIB)
    peer = memory.of("192.0.2.7")
    connections = [Budget(8 * MIB, peer) for _ in range(4)]
    for connection in connections[:3]:
        connection.take(MIB)
    connections[3].take(MIB)
    with pytest.raises(TooLargeError, match=r"all clients of 192\.0\.2\.7 together .* as many must stay free"):
        connections[3].take(MIB)
    assert memory.held == peer.held <= 4 * MIB
    other = Budget(8 * MIB, memory.of("192.0.2.8"))
    other.take(2 * MIB)
    with pytest.raises(TooLargeError, match=r"all clients of 192\.0\.2\.8"):
        other.take(MIB)
    for connection in (*connections, other):
        connection.give(connection.held)
    assert (memory.held, peer.held) == (0, 0)

"""gRPC's messages from the pieces of a stream."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policybridge_core.errors import TooLargeError
from policybridge_server.grpc.http2.messages import PREFIX, Assembly

_LIMIT = 64 << 20


def taken(assembly: Assembly) -> list[tuple[bool, bytes]]:
    found = []
    while (message := assembly.next(_LIMIT)) is not None:
        found.append((False, message) if isinstance(message, bytes) else (True, b"".join(message)))
    return found


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=70))), st.lists(st.integers(0, 90)), st.booleans())
def test_messages_come_out_as_they_went_in_wherever_they_are_cut(
    messages: list[tuple[bool, bytes]], cuts: list[int], at_once: bool
) -> None:
    data = b"".join(PREFIX.pack(packed, len(message)) + message for packed, message in messages)
    assembly, found, start = Assembly(), [], 0
    for cut in [*cuts, len(data)]:
        assembly.add(data[start : start + cut])
        start += cut
        found += [] if at_once else taken(assembly)
    assert found + taken(assembly) == messages
    assert assembly.size == 0


def test_a_large_message_is_put_together_without_a_second_copy_of_it() -> None:
    size, assembly = 32 << 20, Assembly()
    tracemalloc.start()
    try:
        assembly.add(PREFIX.pack(0, size))
        for _ in range(size >> 14):
            assert assembly.next(_LIMIT) is None
            assembly.add(bytes(bytearray(1 << 14)))
        whole, most = assembly.next(_LIMIT), tracemalloc.get_traced_memory()[1]
        assert whole is not None
        assert len(whole) == size
        assert most < 1.5 * size
    finally:
        tracemalloc.stop()


def test_many_begun_messages_take_little_more_memory_than_their_bytes() -> None:
    begun = [Assembly() for _ in range(64)]
    tracemalloc.start()
    try:
        for assembly in begun:
            assembly.add(PREFIX.pack(0, 4 << 20))
        for _ in range(13):
            for assembly in begun:
                assert assembly.next(_LIMIT) is None
                assembly.add(bytes(bytearray(1 << 14)))
        held = sum(assembly.size for assembly in begun)
        assert tracemalloc.get_traced_memory()[1] < 1.04 * held
    finally:
        tracemalloc.stop()


def test_a_message_above_the_limit_is_refused_by_its_prefix() -> None:
    assembly = Assembly()
    assembly.add(PREFIX.pack(0, _LIMIT + 1))
    with pytest.raises(TooLargeError, match=f"a message of {_LIMIT + 1} bytes; at most {_LIMIT} are taken"):
        assembly.next(_LIMIT)

"""Whatever bytes come as a request: an observation or a clear error, in bounded memory, and the server lives."""

from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_server.mlbridge.grpc.config import FeatureConfig
from policybridge_server.mlbridge.grpc.requests import Requests
from tests.conftest import ServerFactory
from tests.repositories import answering, write_python
from tests.server.mlbridge.mlbridge_clients import PROTOS, channel, message, serving

LIMIT = 1 << 22

DENSE = FeatureConfig("registers.vectors.elements", shape=[-1, 4, 4], pad=True, truncate=True)
NARROW = FeatureConfig("i64s", type="int8_t", shape=[8], pad=True)

KINDS = {
    "everytype.Everything": {"narrow": NARROW},
    "registerallocation.Function": {"dense": DENSE},
    "passsequence.State": {},
}
REQUESTS = {name: Requests(type(message(name)), bind, LIMIT) for name, bind in KINDS.items()}


def varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def field(number: int, wire: int, payload: bytes) -> bytes:
    """Write a field; of wire type 2 with the right length."""
    length = varint(len(payload)) if wire == 2 else b""
    return varint(number << 3 | wire) + length + payload


FIELDS = st.recursive(
    st.binary(max_size=40),
    lambda inner: st.lists(
        st.builds(field, st.integers(1, 35), st.sampled_from([0, 1, 2, 2, 2, 2, 3, 4, 5]), inner), max_size=6
    ).map(b"".join),
    max_leaves=20,
)
"""Bytes that look like messages, often enough nested as ours are."""

LIES = st.builds(
    lambda data, place, lie: data[: place % (len(data) + 1)] + varint(lie) + data[place % (len(data) + 1) :],
    FIELDS,
    st.integers(0, 200),
    st.integers(0, 2**64),
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(sorted(KINDS)), data=st.one_of(st.binary(max_size=200), FIELDS, LIES))
def test_any_bytes_are_an_observation_or_a_clear_error(name: str, data: bytes) -> None:
    requests = REQUESTS[name]
    with suppress(InvalidError, TooLargeError):
        _, row = requests.decode(data)
        assert isinstance(row, bytes) or row.dtype == requests.layout.dtype


def nested(depth: int, number: int) -> bytes:
    data = b""
    for _ in range(depth):
        data = field(number, 2, data)
    return data


@pytest.mark.parametrize("number", [1, 5, 31, 99])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_messages_nested_without_end_are_an_error_or_ignored(name: str, number: int) -> None:
    with suppress(InvalidError):
        REQUESTS[name].decode(nested(2000, number))


HUGE = {
    "many empty messages": ("registerallocation.Function", field(1, 2, b"") * (LIMIT // 2)),
    "many empty vectors": ("registerallocation.Function", field(1, 2, field(5, 2, b"") * (LIMIT // 2 - 8))),
    "many empty strings": ("everytype.Everything", field(28, 2, b"") * (LIMIT // 3)),
    "many map entries": ("everytype.Everything", field(31, 2, b"") * (LIMIT // 3)),
    "many groups": ("everytype.Everything", b"\x9b\x06\x9c\x06" * (LIMIT // 4)),
    "a packed vector": ("everytype.Everything", field(22, 2, b"\x01" * (LIMIT - 8))),
    "numbers that are not packed": ("everytype.Everything", field(22, 0, b"\x01") * (LIMIT // 3)),
    "a field that nobody knows": ("everytype.Everything", field(99, 0, b"\x01") * (LIMIT // 3)),
    "a count that lies": ("everytype.Everything", b"\xb2\x01" + varint(2**31) + b"\x01" * (LIMIT - 8)),
}


@pytest.mark.parametrize("case", HUGE)
def test_a_request_at_the_limit_takes_bounded_memory(case: str) -> None:
    name, data = HUGE[case]
    # From here on the kernel notes this process's peak anew.
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    with suppress(InvalidError, TooLargeError):
        REQUESTS[name].decode(data)
    assert peak() - before < 40 * LIMIT


def peak(process: int | str = "self") -> int:
    """Give the largest memory that a process had, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


@pytest.mark.parametrize("case", ["many empty vectors", "numbers that are not packed", "a count that lies"])
def test_a_server_lives_through_it_and_answers_others(server_factory: ServerFactory, tmp_path: Path, case: str) -> None:
    write_python(tmp_path / "repository", "p", answering("[7]"))
    toml = f'[mlbridge]\nprotos = ["{PROTOS}"]\npolicy = "p"\n'
    server = serving(server_factory, tmp_path / "repository", toml, "--max-observation-bytes", LIMIT)
    name, data = HUGE[case]
    path = "/everytype.EveryType/askInt32s" if "every" in name else "/registerallocation.RegisterAllocation/getAdvice"
    with channel(server) as connection, channel(server) as other:
        refused = connection.unary_unary(path, None, None).future(data, timeout=60)
        assert other.unary_unary(path, None, None)(b"", timeout=60) == b"\x0a\x01\x07"
        assert refused.code() in (
            grpc.StatusCode.OK,
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        )
        assert other.unary_unary(path, None, None)(b"", timeout=60) == b"\x0a\x01\x07"


def test_large_requests_of_several_clients_are_decoded_one_after_the_other(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    write_python(tmp_path / "repository", "p", answering("[7]"))
    toml = f'[mlbridge]\nprotos = ["{PROTOS}"]\npolicy = "p"\n'
    server = serving(server_factory, tmp_path / "repository", toml)
    _, data = HUGE["a packed vector"]
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
    before = peak(server.process.pid)
    with channel(server) as connection:
        ask = connection.unary_unary("/everytype.EveryType/askInt32s", None, None)
        for call in [ask.future(data, timeout=120) for _ in range(8)]:
            assert call.result() == b"\x0a\x01\x07"
    assert peak(server.process.pid) - before < 60 * LIMIT

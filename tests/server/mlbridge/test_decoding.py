"""Large requests of ML-Compiler-Bridge's clients are decoded as the parser would, in bounded memory."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio
import numpy as np
import pytest
from google.protobuf.message import DecodeError, Message

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_serdes.values import Row
from policybridge_server.config import make_config
from policybridge_server.mlbridge.grpc.decoding import Decoding
from policybridge_server.mlbridge.grpc.pieces import Pieces
from tests.server.mlbridge.mlbridge_clients import PASSES, PROTOS, message
from tests.server.mlbridge.test_mlbridge_grpc_config import add_services
from tests.server.mlbridge.test_mlbridge_grpc_fuzz import varint

EVERYTHING = type(message("everytype.Everything"))
PIECES = Pieces(EVERYTHING, 1 << 22)
LONG = 70_000


class Decoded(NamedTuple):
    row: Row


def decoded(data: bytes) -> Decoded:
    return Decoded(np.zeros(len(data), [("x", "u1")]))


def recorded(begun: list[bytes], data: bytes) -> Decoded:
    begun.append(data)
    return decoded(data)


def whole(data: bytes) -> Message:
    """Parse a message in pieces, and put the numbers of its large fields back into it."""
    parsed, large = PIECES.parse(data)
    for name, numbers in large.items():
        assert list(getattr(parsed, name)) == numbers[:1].tolist()
        parsed.ClearField(name)
        getattr(parsed, name).extend(numbers.tolist())
    return parsed


@pytest.mark.parametrize(("number", "shift"), [(1, 0), (127, 3), (128, 1), (1 << 20, 2), ((1 << 31) - 1, 5)])
def test_a_message_in_pieces_is_the_one_that_the_parser_makes(number: int, shift: int) -> None:
    vectors = {
        "i64s": [-number] * (LONG // 10),
        "u32s": [0] * shift + [number] * LONG,
        "f64s": [-0.5] * LONG,
        "f32s": [-0.5] * LONG,
    }
    wanted = message("everytype.Everything", **vectors)
    data = wanted.SerializeToString()
    again = message("everytype.Everything", i64s=[7], texts=["after"]).SerializeToString()
    assert whole(data) == wanted
    assert whole(data + again) == EVERYTHING.FromString(data + again)
    assert whole(again + data + again + data) == EVERYTHING.FromString(again + data + again + data)


@pytest.mark.parametrize("cut", [1, 2, LONG])
def test_a_message_that_is_cut_off_is_no_message_in_pieces_either(cut: int) -> None:
    data = message("everytype.Everything", i64s=[1 << 40] * LONG).SerializeToString()
    with pytest.raises(DecodeError):
        PIECES.parse(data[:-cut])


def test_a_large_request_with_a_group_is_refused() -> None:
    numbers = message("everytype.Everything", i64s=[1] * LONG).SerializeToString()
    with pytest.raises(InvalidError, match="a group"):
        PIECES.parse(b"\xa3\x06\xa4\x06" + numbers)


def test_large_numbers_are_parsed_in_little_more_memory_than_that_of_their_array() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        assert process.submit(_grown_by_parsing, 64 << 20).result() < 16 << 20


def _grown_by_parsing(size: int) -> int:
    """Give the growth of this process' peak memory, in bytes, by parsing ``size`` bytes of float64."""
    (number,) = (field.number for field in EVERYTHING.DESCRIPTOR.fields if field.name == "f64s")
    # Two copies for a moment: the peak before has room for an array of that size.
    request = varint(number << 3 | 2) + varint(size) + np.random.default_rng(1).bytes(size)
    before = _peak()
    Pieces(EVERYTHING, size).parse(request)
    return _peak() - before


def _peak() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def test_numbers_without_an_end_are_no_message_in_pieces_either() -> None:
    begun = message("everytype.Everything", i64s=[0]).SerializeToString()[:-2]
    data = begun + b"\x80\x80\x08" + b"\xff" * (1 << 17)
    with pytest.raises(DecodeError):
        PIECES.parse(data)


def test_packed_numbers_that_become_more_bytes_than_an_observation_may_have_are_refused() -> None:
    within = message("everytype.Everything", i64s=[0] * (1 << 18), flags=[True] * (1 << 20)).SerializeToString()
    assert whole(within) == EVERYTHING.FromString(within)
    with pytest.raises(TooLargeError, match="more than 4194304 bytes"):
        PIECES.parse(message("everytype.Everything", i64s=[0] * ((1 << 19) + 1)).SerializeToString())


def test_a_large_request_is_decoded_when_the_observations_before_are_freed() -> None:
    async def run() -> None:
        begun: list[bytes] = []
        decode = partial(recorded, begun)
        decoding = Decoding(room=2, longest=600.0)
        first = await decoding.decode(decode, b"one", "a")
        second = asyncio.create_task(decoding.decode(decode, b"two", "a"))
        await asyncio.to_thread(lambda: None)
        assert begun == [b"one"]
        del first
        await second
        assert begun == [b"one", b"two"]

    asyncio.run(run())


def test_a_request_does_not_wait_without_end_for_observations_that_the_ledger_keeps() -> None:
    async def run() -> None:
        decoding = Decoding(room=2, longest=0.01)
        kept = [await decoding.decode(decoded, b"one", "a") for _ in range(3)]
        assert len(kept) == 3

    asyncio.run(run())


def test_a_client_with_one_large_request_waits_for_one_of_a_client_with_many() -> None:
    async def run() -> None:
        begun: list[bytes] = []
        decode = partial(recorded, begun)
        decoding = Decoding(room=1 << 20)
        many = [asyncio.create_task(decoding.decode(decode, b"of many", "a")) for _ in range(8)]
        await asyncio.sleep(0)
        await decoding.decode(decode, b"alone", "b")
        assert begun.index(b"alone") <= 2
        await asyncio.gather(*many)

    asyncio.run(run())


class Counting(ThreadPoolExecutor):
    """The threads of a loop, which count their work."""

    given = 0

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Count a piece of work."""
        self.given += 1
        return super().submit(work, *args, **kwargs)


def test_a_request_of_64_kib_is_decoded_outside_of_the_loops_thread_and_a_smaller_one_within(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    (tmp_path / "config.toml").write_text(f'[mlbridge]\nprotos = ["{PROTOS}"]\npolicy = "p"\n')
    config = make_config(
        tmp_path / "config.toml", {"grpc": ["127.0.0.1:0"], "repository": [str(tmp_path / "repository")]}
    )

    async def run() -> list[int]:
        threads, server = Counting(), grpc.aio.server()
        asyncio.get_running_loop().set_default_executor(threads)
        await add_services(config, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        given = []
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as connection:
            for size in (1 << 16) - 1, (1 << 16) - 1, 1 << 16:
                before = threads.given
                # There is no such policy, which is told after the request is decoded.
                with pytest.raises(grpc.aio.AioRpcError) as failure:
                    await connection.unary_unary(PASSES, None, None)(_sized(size), timeout=60)
                assert failure.value.code() is grpc.StatusCode.NOT_FOUND
                given.append(threads.given - before)
        await server.stop(0)
        return given

    first, small, large = asyncio.run(run())
    assert first == small == large - 1


def _sized(size: int) -> bytes:
    """Give a request of so many bytes: a field that the message does not have."""
    data = varint(99 << 3 | 2) + varint(size - 5) + bytes(size - 5)
    assert len(data) == size
    return data

"""What all clients of all doors may make the server hold together (--max-buffered-bytes)."""

import asyncio
import select
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from pathlib import Path

import grpc
import numpy as np
import pytest

from policybridge.v1.policy_service_pb2 import EvaluateRequest, PolicyReference
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_serdes import ElementType, Layout, TensorSpec, load_serdes, pack
from policybridge_serdes.protobuf import spec_to_pb
from policybridge_server.budget import return_memory, returning
from tests.conftest import ServerFactory
from tests.repositories import answering, write_python
from tests.server.publishing.policies import wait_for
from tests.server.transports.beside import asking
from tests.server.transports.test_socket_protocol import Peer

HEADER = (
    b'{"features":[{"name":"x","type":"uint8_t","shape":[-1]}],"advice":{"name":"a","type":"int64_t","shape":[1]}}\n'
)
HALF = b'{"observation":0,"bytes":20000000}\n' + bytes(8 << 20)


def test_half_messages_on_the_socket_are_held_up_to_the_memory_of_all_and_given_back(
    tmp_path: Path, server_factory: ServerFactory
) -> None:
    write_python(tmp_path, "inline", answering("observation['x']"), "inline = true")
    server = server_factory(tmp_path, "--max-buffered-bytes", 40 << 20)

    def begin(stack: ExitStack) -> Peer:
        peer = Peer(server)
        stack.callback(peer.socket.close)
        stack.callback(peer.file.close)
        peer.send(b'{"policybridge":1,"policy":"inline"}\n', HEADER)
        assert "session" in peer.line()
        peer.send(HALF)
        return peer

    with asking(server.socket, "inline") as beside:
        with ExitStack() as stack:
            peers = [begin(stack) for _ in range(4)]
            # Two halves fit; at least one of the others is told that its does not.
            told = [peer.error() for peer in _answered(peers)]
            assert told
            assert all("all clients of user" in error and "max_buffered_bytes" in error for error in told)
            before = beside.decisions
            wait_for(lambda: beside.decisions > before + 10)
        with ExitStack() as stack:
            again = begin(stack)
            again.send(bytes(20_000_000 - (8 << 20)), b"\n")
            assert again.read(1) in (b"\0", b"\1")


def test_the_half_messages_of_one_user_leave_memory_for_the_requests_of_another_address(
    tmp_path: Path, server_factory: ServerFactory
) -> None:
    write_python(tmp_path, "inline", answering("observation['x'][:1]"), "inline = true")
    server = server_factory(tmp_path, "--max-buffered-bytes", 40 << 20)
    large, one = TensorSpec("x", ElementType.UINT8, (6 << 20,)), TensorSpec("y", ElementType.UINT8, (1,))
    layout = Layout.of([large])
    request = EvaluateRequest(policy=PolicyReference(name="inline"), advice_spec=spec_to_pb(one))
    request.encoded.serdes = "bitstream"
    request.encoded.data = load_serdes("bitstream").encode(pack(layout, {"x": np.zeros(6 << 20, np.uint8)}), layout)
    with ExitStack() as stack:
        for _ in range(8):
            peer = Peer(server)
            stack.callback(peer.socket.close)
            stack.callback(peer.file.close)
            peer.send(b'{"policybridge":1,"policy":"inline"}\n', HEADER)
            assert "session" in peer.line()
            with suppress(OSError):
                peer.send(HALF)
        with grpc.insecure_channel(server.grpc.removeprefix("grpc:")) as channel:
            assert PolicyServiceStub(channel).Evaluate(request, timeout=60).policy.name == "inline"


def test_each_worker_holds_as_much_as_a_server_without_workers(tmp_path: Path, server_factory: ServerFactory) -> None:
    write_python(tmp_path, "inline", answering("observation['x'][:1]"), "inline = true")
    server = server_factory(tmp_path, "--max-buffered-bytes", 40 << 20, "--workers", 2)
    length = 9_000_000 - 8
    peers: dict[str, list[Peer]] = {}
    with ExitStack() as stack:
        while len(peers) < 2 or min(map(len, peers.values())) < 3:
            assert sum(map(len, peers.values())) < 40, "one worker takes all"
            peer = Peer(server)
            stack.callback(peer.socket.close)
            stack.callback(peer.file.close)
            peer.send(b'{"policybridge":1,"policy":"inline"}\n', HEADER)
            peers.setdefault(str(peer.line()["session"])[-8:], []).append(peer)
        for each in peers.values():
            for peer in each[:3]:
                peer.send(b'{"observation":0,"bytes":9000000}\n', length.to_bytes(8, "little"), bytes(8 << 20))
        for each in peers.values():
            # Two halves fit, and the third one does not; both workers hold two at a time.
            (told,), _, _ = select.select([peer.socket for peer in each[:3]], [], [], 60)
            for peer in each[:3]:
                if peer.socket is told:
                    assert "max_buffered_bytes" in peer.error()
                else:
                    peer.send(bytes(length - (8 << 20)), b"\n")
                    assert peer.read(1) == b"\0"


def _answered(peers: Sequence[Peer]) -> list[Peer]:
    """Wait until the server answers one of them; give all that it has answered."""
    readable, _, _ = select.select([peer.socket for peer in peers], [], [], 60)
    return [peer for peer in peers if peer.socket in readable]


def test_freed_memory_between_memory_in_use_is_returned_to_the_system() -> None:
    assert _in_its_own_process(_held_after_a_flood) < 60 << 20


def test_memory_that_is_freed_long_after_the_process_grew_is_returned_to_the_system() -> None:
    assert _in_its_own_process(_held_after_a_lasting_flood) < 60 << 20


def _in_its_own_process(measure: Callable[[], int]) -> int:
    """Run `measure` where no test before has left memory that the flood would be put into."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(measure).result()


def _held_after_a_flood() -> int:
    return asyncio.run(_hold())


def _held_after_a_lasting_flood() -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(returning, "_EVERY", 0.02)
        return asyncio.run(_hold(0.5))


async def _hold(kept: float = 0.0) -> int:
    """Give the growth of this process, in bytes, after all but one of 600,000 objects of 600 bytes are freed.

    The objects are kept for some seconds, in which the process is looked at.
    """
    before = _resident()
    task = asyncio.create_task(return_memory())
    await asyncio.sleep(0)
    flood = [bytes(600) for _ in range(600_000)]
    last = flood.pop()
    assert _resident() - before > 300 << 20
    await asyncio.sleep(kept)
    flood.clear()
    try:
        async with asyncio.timeout(60):
            while _resident() - before > 60 << 20:
                await asyncio.sleep(0.1)
    except TimeoutError:
        pass
    task.cancel()
    assert last
    return _resident() - before


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

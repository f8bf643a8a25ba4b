"""Services of other distributions as their authors write them: generated defaults, plain functions and generators."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.conftest import command
from tests.repositories import answering, write_python
from tests.server.transports.test_doors import PREFACE, SETTINGS

SERVICE = """
import grpc
from grpc_health.v1.health_pb2_grpc import HealthServicer, add_HealthServicer_to_server

def one(request, context):
    return request.upper()

def refused(request, context):
    context.abort(grpc.StatusCode.OUT_OF_RANGE, "too far")

def split(request, context):
    yield from (request[at : at + 1] for at in range(len(request)))

def joined(requests, context):
    return b"".join(requests)

def each(requests, context):
    for request in requests:
        yield request.upper()

def add_to_server(server, host, calls):
    handlers = {
        "One": grpc.unary_unary_rpc_method_handler(one),
        "Refused": grpc.unary_unary_rpc_method_handler(refused),
        "Split": grpc.unary_stream_rpc_method_handler(split),
        "Joined": grpc.stream_unary_rpc_method_handler(joined),
        "Each": grpc.stream_stream_rpc_method_handler(each),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("foreign.Plain", handlers),))
    add_HealthServicer_to_server(HealthServicer(), server)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[str], Path]]:
    """Serve them on our port and on one of gRPC's library; give the addresses, and the file of the log."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "foreign_service.py").write_text(SERVICE)
    about = folder / "foreign_service-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-service\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[policybridge.grpc_services]\nforeign = foreign_service:add_to_server\n")
    write_python(folder / "policies", "echo", answering("observation['x']"))
    listen = ["--grpc", "127.0.0.1:0", "--grpcio", "127.0.0.1:0", "--grpc-service", "foreign"]
    log = folder / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command("serve", "--repository", folder / "policies", "--allow-python", *listen),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"},
        )
        try:
            assert process.stdout is not None
            ready, *addresses = process.stdout.readline().split()
            assert ready == "ready", log.read_text()
            yield [address.removeprefix("grpc:") for address in addresses], log
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture(params=["ours", "the library's"])
def channel(request: pytest.FixtureRequest, served: tuple[list[str], Path]) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served[0][request.param != "ours"]) as made:
        yield made


def test_a_method_that_nobody_has_written_is_unimplemented(
    channel: grpc.Channel, served: tuple[list[str], Path], request: pytest.FixtureRequest
) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "Method not implemented!" in (raised.value.details() or "")
    with pytest.raises(grpc.RpcError) as raised:
        list(HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60))
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
    if request.node.callspec.params["channel"] == "ours":
        assert "Traceback" not in served[1].read_text()


def test_plain_functions_and_generators_are_served_like_asynchronous_ones(channel: grpc.Channel) -> None:
    path, plain = "/foreign.Plain/", (bytes, bytes)
    pieces = [b"a", b"b", b"c"]
    assert channel.unary_unary(f"{path}One", *plain)(b"abc", timeout=60) == b"ABC"
    assert list(channel.unary_stream(f"{path}Split", *plain)(b"abc", timeout=60)) == pieces
    assert channel.stream_unary(f"{path}Joined", *plain)(iter(pieces), timeout=60) == b"abc"
    assert list(channel.stream_stream(f"{path}Each", *plain)(iter(pieces), timeout=60)) == [b"A", b"B", b"C"]
    with pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(f"{path}Refused", *plain)(b"", timeout=60)
    assert (raised.value.code(), raised.value.details()) == (grpc.StatusCode.OUT_OF_RANGE, "too far")


def test_a_path_that_is_no_utf8_costs_the_librarys_port_a_moment(served: tuple[list[str], Path]) -> None:
    host, port = served[0][1].split(":")
    fields = {b":method": b"POST", b":scheme": b"http", b":path": b"/\xff", b":authority": b"x"}
    fields |= {b"content-type": b"application/grpc", b"te": b"trailers"}
    block = b"".join(b"\0%c%b%c%b" % (len(name), name, len(value), value) for name, value in fields.items())
    with socket.create_connection((host, int(port)), timeout=60) as peer:
        peer.sendall(PREFACE + SETTINGS + bytes([0, 0, len(block), 1, 5, 0, 0, 0, 1]) + block)
        deadline = time.monotonic() + 60
        while "is started again" not in served[1].read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
    # The port may take a connection that nobody answers any more; for such a one a client waits 20 s by default.
    with grpc.insecure_channel(served[0][1], [("grpc.min_reconnect_backoff_ms", 1000)]) as channel:
        ask = channel.unary_unary("/foreign.Plain/One", bytes, bytes)
        assert ask(b"abc", timeout=60, wait_for_ready=True) == b"ABC"
    assert "is started again" in served[1].read_text()

"""ML-Compiler-Bridge's own messages over gRPC, byte by byte, and the sessions of its clients."""

import signal
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from tests.conftest import ServerFactory, command, running_server
from tests.repositories import answering, write_python
from tests.server.mlbridge.mlbridge_clients import (
    COUNTS,
    OTHERS,
    PROTOS,
    ask,
    channel,
    counting,
    embedding,
    make_fifo,
    registers,
    serving,
)

# Each type's name in ML-Compiler-Bridge's test services, its type in the .proto, and a request encoded by hand from the
# protobuf format; the field's number is 1. Vectors of numbers are packed, as proto3 does it; an empty one has no byte.
CAPTURES = [
    ("int", "int32", b"\x08\x05"),
    ("int", "int32", b"\x08\xfb\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ("long", "int64", b"\x08\x80\x80\x80\x80\x80\x01"),
    ("float", "float", b"\x0d" + struct.pack("<f", 3.14)),
    ("double", "double", b"\x09" + struct.pack("<d", 0.123456789123456789)),
    ("char", "int32", b"\x08\x61"),
    ("bool", "bool", b"\x08\x01"),
    ("bool", "bool", b""),
    ("vec_int", "repeated int32", b"\x0a\x04\x0b\x16\xac\x02"),
    ("vec_long", "repeated int64", b"\x0a\x06\x80\x80\x80\x80\x80\x01"),
    ("vec_float", "repeated float", b"\x0a\x08" + struct.pack("<2f", 11.1, -22.2)),
    ("vec_double", "repeated double", b"\x0a\x10" + struct.pack("<2d", 1.1, float("inf"))),
    ("vec_double", "repeated double", b""),
]


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[grpc.Channel]:
    folder, protos = tmp_path_factory.mktemp("server"), tmp_path_factory.mktemp("protos")
    for name, kind, _ in CAPTURES:
        (protos / f"{name}.proto").write_text(f"""
            syntax = "proto3";
            package MLBridgeTestgRPC_{name};
            service MLBridgeTestService {{ rpc getAdvice(Request) returns (Reply) {{}} }}
            message Request {{ {kind} request_{name} = 1; }}
            message Reply {{ {kind} action = 1; }}
        """)
    (protos / "hello.proto").write_text("""
        syntax = "proto3";
        package helloMLBridgegRPC_a;
        service HelloMLBridgeService { rpc getAdvice(Request) returns (Reply) {} }
        message Request { int32 data = 1; }
        message Reply { int32 action = 1; }
    """)
    repository = tmp_path_factory.mktemp("repository")
    write_python(repository, "echo", answering("next(iter(observation.values()))"))
    (folder / "config.toml").write_text(f'[mlbridge]\nprotos = ["{protos}"]\npolicy = "echo"\n')
    with (
        running_server(repository, folder, "--config", folder / "config.toml") as server,
        channel(server) as connection,
    ):
        yield connection


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, _, data in CAPTURES])
def test_the_bytes_of_every_type_are_answered_in_kind(captured: grpc.Channel, name: str, data: bytes) -> None:
    call = captured.unary_unary(f"/MLBridgeTestgRPC_{name}.MLBridgeTestService/getAdvice", None, None)
    # Request and reply have the same field, and the policy gives back what came.
    assert call(data, timeout=60) == data


def test_the_bytes_of_the_hello_service_are_answered(captured: grpc.Channel) -> None:
    call = captured.unary_unary("/helloMLBridgegRPC_a.HelloMLBridgeService/getAdvice", None, None)
    assert call(b"\x08\x96\x01", timeout=60) == b"\x08\x96\x01"


def test_each_connection_is_a_session(server_factory: ServerFactory, tmp_path: Path) -> None:
    server = counting(server_factory, tmp_path, "")
    with channel(server) as first, channel(server) as second:
        assert [ask(first, embedding(1)) for _ in range(3)] == [1, 2, 3]
        assert ask(second, embedding(1)) == 1
        assert ask(first, embedding(1)) == 4


def test_a_session_ends_with_the_advice_that_is_configured(server_factory: ServerFactory, tmp_path: Path) -> None:
    server = counting(server_factory, tmp_path, "end_advice = 3")
    with channel(server) as connection:
        assert [ask(connection, embedding(1)) for _ in range(6)] == [1, 2, 3, 1, 2, 3]


def test_fields_of_the_request_start_and_end_sessions(server_factory: ServerFactory, tmp_path: Path) -> None:
    service = '[mlbridge.services."registerallocation.RegisterAllocation"]\nstart = "new"\nend = "result"'
    with channel(counting(server_factory, tmp_path, service)) as connection:
        assert registers(connection, new=True) == [1]
        assert registers(connection) == [2]
        assert registers(connection, new=True) == [1]
        assert registers(connection, result=True) == [2]
        with pytest.raises(grpc.RpcError, match="this request does not start one") as failure:
            registers(connection)
        assert failure.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert registers(connection, new=True, result=True) == [1]


def test_a_condition_may_ask_for_a_value(server_factory: ServerFactory, tmp_path: Path) -> None:
    service = '[mlbridge.services."registerallocation.RegisterAllocation"]\nstart = { field = "name", equals = "f" }'
    with channel(counting(server_factory, tmp_path, service)) as connection:
        assert [registers(connection, name=name) for name in ("f", "g", "f")] == [[1], [2], [1]]


def test_a_key_field_tells_sessions_apart_whatever_the_connection(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    service = '[mlbridge.services."registerallocation.RegisterAllocation"]\nkey = "name"'
    server = counting(server_factory, tmp_path, service)
    with channel(server) as first, channel(server) as second:
        assert [registers(first, name=name) for name in ("f", "g", "f")] == [[1], [1], [2]]
        assert registers(second, name="f") == [3]


def test_an_idle_session_ends(server_factory: ServerFactory, tmp_path: Path) -> None:
    fifo = make_fifo(tmp_path, "ended")
    tells = f"{COUNTS}\n    def end(self, session):\n        open({str(fifo)!r}, 'w').close()"
    write_python(tmp_path / "repository", "tells", tells)
    toml = f'[mlbridge]\nprotos = ["{PROTOS}"]\npolicy = "tells"\nidle_timeout = 0.1\n{OTHERS}'
    with channel(serving(server_factory, tmp_path / "repository", toml)) as connection:
        assert ask(connection, embedding(1)) == 1
        # Opens when the policy is told of the session's end.
        fifo.open().close()
        assert ask(connection, embedding(1)) == 1


def test_the_session_that_was_idle_for_longest_makes_room(server_factory: ServerFactory, tmp_path: Path) -> None:
    server = counting(server_factory, tmp_path, "max_sessions = 2")
    with channel(server) as first, channel(server) as second, channel(server) as third:
        assert [ask(each, embedding(1)) for each in (first, second, first, third)] == [1, 1, 2, 1]
        assert [ask(each, embedding(1)) for each in (first, second)] == [3, 1]


def test_a_session_stays_on_its_version_when_another_is_published(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    write_python(repository, "counts", answering("1"))
    toml = f'[mlbridge]\nprotos = ["{PROTOS}"]\npolicy = "counts"\n{OTHERS}'
    server = serving(server_factory, repository, toml)
    with channel(server) as old:
        assert ask(old, embedding(1)) == 1
        write_python(tmp_path / "next", "counts", answering("2"))
        (tmp_path / "next" / "counts" / "1").rename(repository / "counts" / "2")
        while True:
            with channel(server) as new:
                if ask(new, embedding(1)) == 2:
                    break
        assert ask(old, embedding(1)) == 1


def test_the_ledger_holds_the_sessions_with_their_labels(server_factory: ServerFactory, tmp_path: Path) -> None:
    ledger = tmp_path / "runs.db"
    server = counting(server_factory, tmp_path, 'end_advice = 2\nlabels = { suite = "musl" }', "--ledger", ledger)
    with channel(server) as connection:
        assert [ask(connection, embedding(0.5, number)) for number in range(4)] == [1, 2, 1, 2]
        with LedgerReader(ledger) as reader:
            assert [each.closed is None for each in reader.sessions()] == [False, False], "their ends were answered"
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(60)
    with LedgerReader(ledger) as reader:
        first, second = list(reader.trajectories(Query(policy="counts")))
    for trajectory, numbers in ((first, [0, 1]), (second, [2, 3])):
        (batch,) = trajectory.batches
        assert batch.advices["action"].tolist() == [[1], [2]]
        assert [row.tolist() for row in batch.observations["embedding"]] == [[0.5, number] for number in numbers]
        labels = dict(trajectory.session.labels)
        assert labels.pop("peer").startswith("ipv4:127.0.0.1:")
        assert labels == {
            "client": "ml-compiler-bridge",
            "method": "passsequence.PassSequence/getAdvice",
            "suite": "musl",
        }


def test_messages_of_many_megabytes_are_taken_where_the_limit_allows(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    write_python(tmp_path / "repository", "size", answering("observation['embedding'].size"))
    toml = f'[mlbridge]\nprotos = ["{PROTOS}"]\npolicy = "size"\n{OTHERS}'
    server = serving(server_factory, tmp_path / "repository", toml, "--max-observation-bytes", 200_000_000)
    with channel(server) as connection:
        count = 5_000_000
        size = 4 * count
        header = b"\x0a" + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21])
        assert ask(connection, header + bytes(size), timeout=60) == count


def test_clients_of_a_unix_socket_are_told_apart_where_that_is_possible(tmp_path: Path) -> None:
    with serving_unix(tmp_path, "grpc") as address, grpc.insecure_channel(address) as connection:
        assert [ask(connection, embedding(1)) for _ in range(2)] == [1, 2]
    with serving_unix(tmp_path, "grpcio") as address, grpc.insecure_channel(address) as connection:
        assert [ask(connection, embedding(1)) for _ in range(2)] == [1, 1]
        with pytest.raises(grpc.RpcError, match="need a `key`"):
            registers(connection, new=True)


@contextmanager
def serving_unix(folder: Path, transport: str) -> Iterator[str]:
    write_python(folder / transport, "counts", COUNTS)
    service = '[mlbridge.services."registerallocation.RegisterAllocation"]\nstart = "new"'
    mlbridge = f'[mlbridge]\nprotos = ["{PROTOS}"]\npolicy = "counts"\n{service}\n{OTHERS}'
    (folder / "config.toml").write_text(f'{transport} = ["unix:{folder}/{transport}.sock"]\n{mlbridge}')
    serve = ["serve", "--repository", folder / transport, "--allow-python", "--config", folder / "config.toml"]
    with subprocess.Popen(command(*serve), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1].removeprefix("grpc:")
        finally:
            process.kill()


def test_a_connection_is_one_session_however_many_calls_wait_for_its_version(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    entered, released = make_fifo(tmp_path, "entered"), make_fifo(tmp_path, "released")
    slow = f"open({str(entered)!r}, 'w').close()\nopen({str(released)!r}).close()\n{COUNTS}"
    write_python(tmp_path / "repository", "counts", slow, version=1)
    write_python(tmp_path / "repository", "counts", COUNTS, version=2)
    # What is not the newest version is loaded when it is asked for.
    toml = f'[mlbridge]\nprotos = ["{PROTOS}"]\npolicy = "counts@1"\n{OTHERS}'
    server = serving(server_factory, tmp_path / "repository", toml)
    with channel(server) as connection, ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(ask, connection, embedding(number)) for number in range(8)]
        entered.open().close()
        released.open("w").close()
        assert sorted(answer.result() for answer in answers) == list(range(1, 9))

"""The Unix socket as SOCKET.md describes it, byte for byte."""

import json
import select
import socket
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from policybridge_server.transports.socket_frames import Hello, Report, Resume, parse_hello
from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python
from tests.server.publishing.policies import wait_for

HEADER = (
    b'{"features":[{"name":"x","type":"int64_t","port":0,"shape":[1]},'
    b'{"name":"y","type":"int64_t","port":0,"shape":[1]}],'
    b'"advice":{"name":"decision","type":"int64_t","port":0,"shape":[1]}}\n'
)
TWO_KINDS = """
class Policy:
    def evaluate(self, observation, session):
        return observation["x"] + observation["y"]

    def pass_choice(self, observation, session):
        return observation["x"] * observation["y"]
"""
HELLO = b'{"policybridge":1,"policy":"sum"}\n'
END = b'{"end":true}\n'
RECORDED = b'\0{"recorded":true}\n'


def observation(number: int, x: int, y: int) -> bytes:
    return b'{"observation":%d}\n' % number + struct.pack("<qq", x, y) + b"\n"


def advice(value: int) -> bytes:
    return b"\0" + struct.pack("<q", value)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    for version in (1, 2):
        source = answering(f"observation['x'] + observation['y'] + {version - 2} * 1000")
        write_python(repository, "sum", source, version=version)
    write_python(repository, "context", answering("len(session.context)"))
    write_python(repository, "two-kinds", TWO_KINDS, 'decides = ["decision", "pass_choice"]')
    write_python(repository, "reverse", answering('observation["items"][::-1]'))
    write_python(
        repository,
        "raises",
        """
        class Policy:
            def evaluate(self, observation, session):
                raise ValueError("no idea")
        """,
    )
    waits = answering("threading.Event().wait(float(observation['x'][0]) / 5) or observation['x'] + observation['y']")
    write_python(repository, "waits", f"import threading\n\n{waits}")
    options = ["--max-observation-bytes", 1 << 20, "--decision-timeout", 600, "--http", "127.0.0.1:0"]
    with running_server(repository, tmp_path_factory.mktemp("s"), *options) as running:
        yield running


class Peer:
    """A client that knows nothing but bytes."""

    def __init__(self, server: RunningServer) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(server.socket.removeprefix("socket:"))
        self.file = self.socket.makefile("rb")

    def send(self, *parts: bytes) -> None:
        # After the server has ended the session there may be more to send; what it said is still to be read.
        with suppress(BrokenPipeError, ConnectionResetError):
            for part in parts:
                self.socket.sendall(part)

    def line(self) -> dict[str, object]:
        result: dict[str, object] = json.loads(self.file.readline())
        return result

    def read(self, size: int) -> bytes:
        return self.file.read(size)

    def error(self) -> str:
        """Read an error frame and the end of the stream; give its status and message."""
        assert self.read(1) == b"\1"
        return self.last_line()

    def last_line(self) -> str:
        error = self.line()["error"]
        assert isinstance(error, dict)
        assert self.read(1) == b""
        return f"{error['status']} {error['message']}"


Connect = Callable[[], Peer]


@pytest.fixture
def connect(server: RunningServer) -> Iterator[Connect]:
    peers: list[Peer] = []

    def make() -> Peer:
        peers.append(Peer(server))
        return peers[-1]

    yield make
    for peer in peers:
        peer.file.close()
        peer.socket.close()


def test_a_session_is_a_hello_then_llvms_stream_and_framed_advice(connect: Connect) -> None:
    peer = connect()
    peer.send(HELLO)
    opened = peer.line()
    assert (opened["policy"], opened["version"]) == ("sum", 2)
    assert str(opened["digest"]).startswith("sha256:")
    peer.send(HEADER, b'{"context":"a.c"}\n', observation(0, 40, 2))
    assert peer.read(9) == advice(42)
    peer.send(observation(1, -1, 0))
    assert peer.read(9) == advice(-1)


def test_a_stream_that_arrives_byte_by_byte_is_the_same_stream(connect: Connect) -> None:
    peer = connect()
    whole = HELLO + HEADER + b'{"context":""}\n' + observation(0, 1, 2) + observation(1, 3, 4)
    peer.send(*(bytes([byte]) for byte in whole))
    peer.line()
    assert peer.read(18) == advice(3) + advice(7)


def test_observations_sent_ahead_are_answered_in_order(connect: Connect) -> None:
    peer = connect()
    peer.send(HELLO + HEADER + b"".join(observation(number, number, 0) for number in range(200)))
    peer.line()
    assert peer.read(200 * 9) == b"".join(advice(number) for number in range(200))


def test_raw_framing_is_exactly_what_llvm_reads(connect: Connect) -> None:
    peer = connect()
    peer.send(b'{"policybridge":1,"policy":"sum","framing":"raw"}\n', HEADER, observation(0, 40, 2))
    peer.line()
    assert peer.read(8) == struct.pack("<q", 42)


def test_an_error_in_raw_framing_is_the_end_of_the_stream_alone(connect: Connect) -> None:
    peer = connect()
    peer.send(b'{"policybridge":1,"policy":"raises","framing":"raw"}\n', HEADER, observation(0, 40, 2))
    peer.line()
    assert peer.read(1) == b""


def test_a_version_can_be_asked_for_by_number(connect: Connect) -> None:
    peer = connect()
    peer.send(b'{"policybridge":1,"policy":"sum","version":1}\n', HEADER, observation(0, 1, 1))
    assert peer.line()["version"] == 1
    assert peer.read(9) == advice(-998)


def test_a_second_header_is_bound_anew_in_the_same_session(connect: Connect) -> None:
    peer = connect()
    peer.send(HELLO, HEADER, observation(0, 1, 2))
    peer.line()
    assert peer.read(9) == advice(3)
    swapped = HEADER.replace(b'"x"', b'"?"').replace(b'"y"', b'"x"').replace(b'"?"', b'"y"')
    peer.send(swapped.replace(b'"decision","type":"int64_t"', b'"decision","type":"int32_t"'), observation(0, 5, 6))
    assert peer.read(5) == b"\0" + struct.pack("<i", 11)


def test_the_answer_to_the_hello_tells_the_kinds_of_decisions_that_the_policy_declares(connect: Connect) -> None:
    peer = connect()
    peer.send(b'{"policybridge":1,"policy":"two-kinds"}\n', HEADER, observation(0, 1, 2))
    assert peer.line()["decides"] == ["decision", "pass_choice"]
    assert peer.read(9) == advice(3)
    peer.send(HEADER.replace(b'"decision"', b'"pass_choice"'), observation(0, 5, 6))
    assert peer.read(9) == advice(30)


def test_a_header_of_a_kind_of_decision_that_the_policy_lacks_ends_the_session(connect: Connect) -> None:
    peer = connect()
    peer.send(b'{"policybridge":1,"policy":"two-kinds"}\n')
    peer.send(HEADER.replace(b'"decision"', b'"tile"'), observation(0, 1, 2))
    peer.line()
    assert peer.error() == "3 two-kinds@1 decides decision, pass_choice, and not 'tile'"


def test_the_context_line_reaches_the_policy(connect: Connect) -> None:
    peer = connect()
    peer.send(b'{"policybridge":1,"policy":"context"}\n', HEADER, b'{"context":"four"}\n', observation(0, 0, 0))
    peer.line()
    assert peer.read(9) == advice(4)
    peer.send(b'{"context":"longer"}\n', observation(0, 0, 0))
    assert peer.read(9) == advice(6)


def test_tensors_that_vary_come_and_go_with_their_size(connect: Connect) -> None:
    peer = connect()
    header = HEADER.replace(
        b'"name":"x","type":"int64_t","port":0,"shape":[1]', b'"name":"items","type":"int32_t","shape":[-1]'
    )
    header = header.replace(
        b'"decision","type":"int64_t","port":0,"shape":[1]', b'"order","type":"int32_t","shape":[-1]'
    )
    items = np.array([1, 2, 3], "<i4").tobytes()
    payload = struct.pack("<Q", 3) + items + struct.pack("<q", 0)
    peer.send(b'{"policybridge":1,"policy":"reverse"}\n', header)
    peer.send(b'{"observation":0,"bytes":%d}\n' % len(payload) + payload + b"\n")
    peer.line()
    expected = struct.pack("<Q", 3) + np.array([3, 2, 1], "<i4").tobytes()
    assert peer.read(9 + len(expected)) == b"\0" + struct.pack("<Q", len(expected)) + expected


@pytest.mark.parametrize(
    ("hello", "message"),
    [
        (b"GET / HTTP/1.1\r\n", "3 the hello line is malformed"),
        (
            b'{"policybridge":2,"policy":"sum"}\n',
            "3 the hello line is malformed: Invalid enum value 2 - at `$.policybridge`",
        ),
        (b'{"policybridge":1}\n', "3 the hello line is malformed: Object missing required field `policy`"),
        (b'{"policybridge":1,"policy":"nobody"}\n', "5 no policy 'nobody'; there are context, raises, reverse, sum"),
        (b'{"policybridge":1,"policy":"sum","version":7}\n', "5 no version 7 of policy 'sum'; there are 1, 2"),
        (b'{"policybridge":1,"policy":"sum","alias":"best"}\n', "5 policy 'sum' has no alias 'best'; there are latest"),
        (b"x" * (1 << 21) + b"\n", "8 the hello line is longer than"),
    ],
)
def test_a_hello_that_cannot_be_served_is_answered_with_the_reason(
    connect: Connect, hello: bytes, message: str
) -> None:
    peer = connect()
    try:
        peer.send(hello)
    except (BrokenPipeError, ConnectionResetError):
        # The server answered and closed before it had all of a line that is too long.
        assert len(hello) > 1 << 20
    assert peer.last_line().startswith(message)


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"\x80\x00\xff\n", "3 not a line of LLVM's stream"),
        (b'{ "context":"f"}\n', "3 not a line of LLVM's stream"),
        (observation(0, 1, 2), "3 an observation came before the header"),
        (HEADER.replace(b"int64_t", b"int65_t"), "3 x: unknown element type 'int65_t'"),
        (HEADER.replace(b'"shape":[1]', b'"shape":[4294967296]'), "8 "),
        (HEADER.replace(b'"shape":[1]', b'"shape":[1000000]'), "8 the header promises tensors of 16000000 bytes"),
        (HEADER + observation(0, 1, 2)[:-1] + b"!", "3 an observation of 16 bytes does not end in a newline"),
        (HEADER + b'{"observation":zero}\n' + b"0" * 17, "3 not an observation line of LLVM's stream"),
    ],
)
def test_a_stream_that_is_not_llvms_ends_its_session_with_the_reason(
    connect: Connect, stream: bytes, message: str
) -> None:
    bystander, peer = connect(), connect()
    bystander.send(HELLO, HEADER)
    bystander.line()
    peer.send(HELLO)
    peer.line()
    peer.send(stream)
    assert peer.error().startswith(message)
    bystander.send(observation(0, 2, 2))
    assert bystander.read(9) == advice(4)


def test_a_policy_that_raises_is_an_error_with_its_message(connect: Connect) -> None:
    peer = connect()
    peer.send(b'{"policybridge":1,"policy":"raises"}\n', HEADER, observation(0, 40, 2))
    peer.line()
    assert peer.error() == "13 the policy failed: ValueError: no idea (policy.py, line 4)"


def test_a_client_that_never_reads_its_answers_is_not_read_any_further(connect: Connect) -> None:
    peer = connect()
    peer.send(HELLO, HEADER)
    peer.socket.settimeout(1)
    with pytest.raises(TimeoutError):
        peer.send(*([observation(0, 1, 1) * 1000] * 1000))
    other = connect()
    other.send(HELLO, HEADER, observation(0, 1, 1))
    other.line()
    assert other.read(9) == advice(2)


def test_the_server_closes_the_connection_of_a_session_that_has_ended_at_once(connect: Connect) -> None:
    peer = connect()
    peer.send(HELLO, HEADER, observation(0, 1, 1), END)
    peer.line()
    assert peer.file.read() == advice(2) + RECORDED
    with pytest.raises(BrokenPipeError):
        peer.socket.send(b"x")


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_client_that_says_more_after_its_end_still_reads_that_its_record_is_kept(connect: Connect, size: int) -> None:
    peer = connect()
    peer.send(HELLO + HEADER + END + b"x" * size)
    peer.line()
    assert peer.file.read() == RECORDED


def test_a_client_that_closes_its_own_half_reads_the_answer_to_its_last_question(connect: Connect) -> None:
    peer = connect()
    peer.send(b'{"policybridge":1,"policy":"waits"}\n', HEADER, observation(0, 1, 2))
    peer.socket.shutdown(socket.SHUT_WR)
    peer.line()
    assert peer.file.read() == advice(3)


def test_a_client_that_is_gone_is_not_waited_for_however_long_its_question_takes(server: RunningServer) -> None:
    peer = Peer(server)
    peer.send(b'{"policybridge":1,"policy":"waits"}\n', HEADER, observation(0, 3000, 0))
    peer.line()
    peer.file.close()
    peer.socket.close()
    wait_for(lambda: sessions_of(server, "waits") == 0)


def sessions_of(server: RunningServer, policy: str) -> float:
    """Give how many sessions of a policy are open."""
    http = next(each for each in server.others if each.startswith("http:")).replace("http:", "http://")
    text = urllib.request.urlopen(f"{http}/metrics", timeout=60).read().decode()
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return sum(
        each.value for each in samples if each.name == "policybridge_sessions" and each.labels["policy"] == policy
    )


def test_a_socket_file_left_by_a_dead_server_is_replaced(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write_python(tmp_path, "one", answering("1"))
    folder = tmp_path_factory.mktemp("s")
    with running_server(tmp_path, folder) as first:
        first.kill()
        assert (folder / "server.sock").is_socket()
        with running_server(tmp_path, folder) as second:
            peer = Peer(second)
            peer.send(b'{"policybridge":1,"policy":"one"}\n')
            assert peer.line()["policy"] == "one"
            peer.file.close()
            peer.socket.close()


def test_without_watchfiles_a_refused_client_that_does_not_close_is_closed_by_the_server(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # watchfiles wakes the loop again and again; without it, the loop wakes for the client's end alone.
    start = "import sys; sys.modules['watchfiles'] = None; from policybridge_client.cli import main; sys.exit(main())"
    listen = ["--repository", tmp_path, "--socket", tmp_path_factory.mktemp("s") / "server.sock"]
    command = [sys.executable, "-c", start, "serve", *map(str, listen)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            _, address = process.stdout.readline().split()
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(address.removeprefix("socket:"))
                peer.sendall(b"{}\n")
                assert peer.makefile("rb").readline().startswith(b'{"error":')
                closed = select.poll()
                closed.register(peer, 0)  # a hang-up is always reported
                assert closed.poll(8000)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"policybridge":1,"policy":"p","labels":{"report":"resume","a\\\\b":"c"}}', Hello),
        (b'{"policybridge":1,"policy":"p"}', Hello),
        (b'{"policybridge":1,"report":"id","outcome":{}}', Report),
        (b'{"policybridge":1,"rep\\u006frt":"id","outcome":{}}', Report),
        (b'{"policybridge":1,"r\\u0065sume":"id","policy":"p","version":1,"digest":"d"}', Resume),
    ],
)
def test_a_first_line_is_told_apart_however_it_writes_its_names(line: bytes, kind: type) -> None:
    assert type(parse_hello(line)) is kind

"""Malformed messages of a compiler or a server, under ASan and UBSan: an error with the message, and no crash."""

import json
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from tests.client.compilers import parameters, write_pressure, write_source
from tests.conftest import RunningServer
from tests.native.launcher.running import run

_COMPILER = f"""#!{sys.executable}
import random, sys
base = next(word.partition("=")[2] for word in sys.argv if "channel-base=" in word)
replies, observations = open(base + ".in", "rb", buffering=0), open(base + ".out", "wb", buffering=0)
stream, size = open("stream", "rb").read(), random.Random(1)
while stream:
    cut = size.choice((1, 7, 100, 5000, 70000))
    observations.write(stream[:cut])
    stream = stream[cut:]
wanted = int(open("replies").read())
with open("made.o", "wb") as made:
    while wanted:
        got = replies.read(wanted)
        wanted -= len(got)
        made.write(got)
"""
"""A compiler that writes the content of the file ``stream`` in pieces, and reads the number of bytes in ``replies``."""


def header(pad: int = 1, shape: Sequence[int] = (1,), kind: str = "float") -> bytes:
    specs = [("weight", kind, shape), ("pad", "int64_t", [pad])]
    features = [{"name": name, "type": type_, "port": 0, "shape": list(dims)} for name, type_, dims in specs]
    advice = {"name": "priority", "type": "float", "port": 0, "shape": [1]}
    return json.dumps({"features": features, "advice": advice}, separators=(",", ":")).encode() + b"\n"


def observation(number: int, weight: float, pad: int = 1) -> bytes:
    return b'{"observation":%d}\n%b%b\n' % (number, struct.pack("<f", weight), b"\n{\0\xff" * (2 * pad))


def context(name: str) -> bytes:
    return json.dumps({"context": name}).encode() + b"\n"


@pytest.fixture
def compile_stream(
    checked_launcher: str, server: RunningServer, folder: Path
) -> Callable[..., tuple[int, str, bytes | None]]:
    """Run a compiler that writes given bytes to the launcher."""
    compiler = folder / "clang"
    compiler.write_text(_COMPILER)
    compiler.chmod(0o755)

    def compile_(stream: bytes, replies: int, address: str | None = None) -> tuple[int, str, bytes | None]:
        (folder / "stream").write_bytes(stream)
        (folder / "replies").write_text(str(replies))
        options = ["--policy", "weight", "--task", "priority", "--fallback", "error", "--timeout", "5"]
        words = [str(compiler), "-O2", "-c", "x.c"]
        ran = run([checked_launcher], [*options, "--server", address or server.socket], words)
        assert "Sanitizer" not in ran.said
        assert "runtime error" not in ran.said
        return ran.status, ran.said, ran.output

    return compile_


Compile = Callable[..., tuple[int, str, bytes | None]]


def test_llvms_messages_may_arrive_in_pieces_of_any_size(compile_stream: Compile) -> None:
    stream = b""
    expected: list[float] = []
    for pad in (1, 3, 100_000, 3):
        stream += header(pad) + context("module")
        for number in range(5):
            weight = len(expected) + 0.5
            stream += context(f"f{number}") * (number % 2) + observation(number, weight, pad)
            expected.append(weight)
    status, said, made = compile_stream(stream, 4 * len(expected))
    assert (status, said) == (0, "")
    assert made == struct.pack(f"<{len(expected)}f", *expected)


@pytest.mark.parametrize(
    ("stream", "named"),
    [
        (b"hello\n", "hello"),
        (b"\n", "not a line"),
        (b'{"observation":0}\n', "before the header"),
        (header() + b'{"observation":x}\n', "observation"),
        (header() + b'{"observation":}\n', "observation"),
        (header() + b'{"observation":1,"bytes":5}\n', "bytes"),
        (header() + observation(0, 1)[:-1] + b"x", "newline"),
        (b"x" * (1 << 20), "longer than"),
        (b'{"features":' + b"[" * 100_000 + b"\n", "header"),
        (b'{"features":[]}\n', "advice"),
        (b'{"features":[1],"advice":{}}\n', "name"),
        (header(shape=(-1,)), "weight"),
        (header(shape=(1 << 14, 1 << 14)), "more than"),
        (header(pad=10**30), "pad"),
        (header(kind="string"), "'string'"),
    ],
)
def test_a_malformed_message_ends_the_compiler_and_is_in_the_error(
    compile_stream: Compile, stream: bytes, named: str
) -> None:
    status, said, _ = compile_stream(stream, 4)
    assert status == 70
    assert named in said


def test_messages_with_random_damage_end_the_compiler(compile_stream: Compile) -> None:
    chance = random.Random(7)
    whole = header(2) + context("f") + b"".join(observation(number, 0.5, 2) for number in range(3))
    for _ in range(12):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(damaged))
            damaged[place : place + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 2))
        status, said, _ = compile_stream(bytes(damaged) + b"\nend\n", 4 * 4)
        assert status == 70, said


OPENED = b'{"session":"s","policy":"p","version":1,"digest":"sha256:0"}\n'

NOT_JSON_NUMBERS = [b"-inf", b"inf", b"nan", b"01", b"1.", b".5", b"+1", b"0x1", b"1e"]
"""Numbers that C's functions accept, and JSON (RFC 8259) does not."""


@contextmanager
def saying(path: Path, *answers: bytes) -> Iterator[str]:
    """Listen on a socket, and send each connection the same answers, one after each message that it sends."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                for answer in answers:
                    if connection.recv(1 << 16):
                        connection.sendall(answer)

    thread = Thread(target=serve)
    thread.start()
    yield f"socket:{path}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize(
    ("answers", "named"),
    [
        ([], "the server at"),
        ([b"hello\n"], "does not follow the protocol"),
        ([b"{}\n"], "does not follow the protocol"),
        ([b'{"error":{"status":5,"message":"no such \\u00fc\\ud83d\\ude00"}}\n'], "no such ü😀"),
        ([OPENED[:20]], "went away"),
        ([b"x" * ((1 << 20) + 1)], "more than"),
        ([OPENED], "went away"),
        ([OPENED, b"\0\1\2"], "went away"),
        ([OPENED, b"\1"], "went away"),
        ([OPENED, b"\1{}\n"], "does not follow the protocol"),
        ([OPENED, b'\1{"error":{"status":13,"message":"boom"}}\n'], "boom"),
        ([OPENED, b"\7{}"], "does not follow the protocol"),
    ],
)
def test_a_malformed_answer_of_the_server_is_in_the_error_and_is_not_advice(
    compile_stream: Compile, folder: Path, answers: Sequence[bytes], named: str
) -> None:
    with saying(folder / "s", *answers) as address:
        status, said, made = compile_stream(header() + observation(0, 1.0), 4, address)
    assert status == 70
    assert named in said
    assert not made


@pytest.mark.parametrize("number", NOT_JSON_NUMBERS)
def test_a_number_that_json_does_not_allow_is_refused_in_the_servers_answer(
    compile_stream: Compile, folder: Path, number: bytes
) -> None:
    answer = b'{"session":"s","policy":"p","version":1,"digest":"sha256:0","more":%b}\n' % number
    with saying(folder / "s", answer) as address:
        status, said, made = compile_stream(header() + observation(0, 1.0), 4, address)
    assert status == 70
    assert not made
    assert 'does not follow the protocol: \'{"session":' in said


@pytest.mark.parametrize("number", NOT_JSON_NUMBERS)
def test_a_number_that_json_does_not_allow_is_refused_in_llvms_header(compile_stream: Compile, number: bytes) -> None:
    broken = header().replace(b'"port":0', b'"port":' + number, 1)
    status, said, _ = compile_stream(broken + observation(0, 1.0), 4)
    assert status == 70
    assert "not a header line" in said


@pytest.mark.parametrize("compiler", parameters("clang-19", "clang-22"))
@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["--policy", "echo"], 0),
        (["--policy", "never", "--option", "raise_at=5"], 0),
        (["--policy", "never", "--option", "raise_at=5", "--fallback", "error"], 70),
        (["--policy", "illegal", "--task", "evict"], 0),
        (["--policy", "echo", "--server", "/nowhere"], 0),
    ],
)
def test_real_compilations_are_clean_under_the_sanitizers(  # noqa: PLR0917
    checked_launcher: str, server: RunningServer, folder: Path, compiler: str, options: Sequence[str], status: int
) -> None:
    source = write_pressure(folder) if "evict" in options else write_source(folder)
    words = [compiler, "-O2", "-c", source.name, "-o", "made.o"]
    ran = run([checked_launcher], ["--server", server.socket, *options], words)
    assert ran.status == status, ran.said
    assert "Sanitizer" not in ran.said


def test_wrong_commands_are_clean_under_the_sanitizers(checked_launcher: str) -> None:
    for words in ([], ["--policy"], ["--policy="], ["--x"], ["--"], ["--policy", "@", "--server", "/", "--", ""]):
        said = subprocess.run([checked_launcher, *words], capture_output=True, text=True, check=False)
        assert said.returncode == 2
        assert "Sanitizer" not in said.stderr

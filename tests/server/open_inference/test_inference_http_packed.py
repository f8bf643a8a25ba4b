"""Bodies in gzip or deflate: unpacked after the request is judged, beside the loop, up to the limit of a body."""

import gzip
import json
import socket
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.repositories import answering, write_python
from tests.server.access.doors import Doors, opened
from tests.server.open_inference.test_inference_http_guard import asked
from tests.server.transports.beside import asking, processor_seconds

SIZE = 64 << 20
TOKENS = '[ci]\ntoken = "a-token-of-the-ci-jobs"\nscopes = ["evaluate", "read"]\n'
INFER = "/v2/models/one/infer"
HEADER = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def bomb() -> bytes:
    return gzip.compress(bytes(SIZE))


@pytest.fixture(scope="module")
def doors() -> Iterator[Doors]:
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        write_python(folder / "policies", "one", answering("1"))
        write_python(folder / "policies", "inline", answering("observation['x']"), "inline = true")
        (folder / "tokens").write_text(TOKENS)
        (folder / "tokens").chmod(0o600)
        with opened(folder, "--tokens", folder / "tokens", "--socket", folder / "s", doors=("http",)) as doors:
            doors.addresses["socket"] = str(folder / "s")
            yield doors


def packed(doors: Doors, body: bytes, token: str = "a-token-of-the-ci-jobs", **headers: str) -> tuple[int, str]:
    headers = {"Content_Encoding": "gzip", "Authorization": f"Bearer {token}", **headers}
    return asked(doors.addresses["http"], INFER, body=body, Host="localhost", **headers)


@pytest.mark.parametrize("name", ["gzip", "deflate", "GZIP"])
def test_a_body_in_gzip_or_deflate_is_read_as_the_same_one_without(doors: Doors, name: str) -> None:
    sent = json.dumps({"inputs": [{"name": "x", "datatype": "nonsense", "shape": [1], "data": [1]}]}).encode()
    small = gzip.compress(sent) if name.lower() == "gzip" else zlib.compress(sent)
    status, error = packed(doors, small, Content_Encoding=name)
    assert (status, "nonsense" in error) == (400, True), error


@pytest.mark.parametrize("name", ["zstd", "gzip, gzip"])
def test_an_encoding_that_is_not_taken_is_refused_with_those_that_are(doors: Doors, name: str) -> None:
    refused = packed(doors, b"{}", Content_Encoding=name)
    assert refused == (400, f"a body with the Content-Encoding '{name}'; taken are gzip, deflate")


def test_a_request_that_is_refused_is_not_unpacked(doors: Doors, bomb: bytes) -> None:
    begun, count = time.process_time(), 8
    for _ in range(count):
        gzip.decompress(bomb)
    unpacking = time.process_time() - begun
    before = processor_seconds(doors.process.pid)
    for _ in range(count):
        assert packed(doors, bomb, "a-token-of-nobody-at-all", **{HEADER: "9"})[0] == 401
    assert processor_seconds(doors.process.pid) - before < unpacking / 2


def test_decisions_go_on_while_a_body_is_unpacked(doors: Doors, bomb: bytes) -> None:
    with asking(doors.addresses["socket"], "inline") as beside:
        before = beside.decisions
        for _ in range(4):
            # It is unpacked as far as its limit.
            assert packed(doors, bomb + bomb, **{HEADER: "9"})[0] in (400, 413)
        assert beside.decisions - before > 20


def test_a_body_that_is_too_large_when_it_is_unpacked_is_refused(doors: Doors, bomb: bytes) -> None:
    status, error = packed(doors, bomb)
    assert (status, "more than 1048576 bytes, unpacked" in error) == (413, True), error


def test_a_connection_goes_on_after_a_packed_body(doors: Doors) -> None:
    host, _, port = doors.addresses["http"].rpartition(":")
    head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-token-of-the-ci-jobs\r\n"
    body = gzip.compress(b"{}")
    request = f"{head}Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with socket.create_connection((host, int(port)), timeout=60) as client:
        answers = client.makefile("rb")
        for _ in range(3):
            client.sendall(request)
            assert answers.readline().startswith(b"HTTP/1.1 400")
            size = 0
            while (line := answers.readline()) != b"\r\n":
                name, _, value = line.decode().partition(":")
                size = int(value) if name.lower() == "content-length" else size
            assert "inputs" in json.loads(answers.read(size))["error"]

"""HTTP serves its own hosts and types of content: no page of another site makes a browser its client."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repositories import answering, write_python
from tests.server.access.doors import opened
from tests.serving import serving


def asked(address: str, path: str = "/v2/health/live", *, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    """Send one request with these headers, and no other but its length; give the status and the error."""
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.putrequest("GET" if body is None else "POST", path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    error = json.load(answer).get("error", "")
    connection.close()
    return answer.status, error


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    write_python(folder, "one", answering("1"))
    return folder


@pytest.fixture(scope="module")
def address(repository: Path) -> Iterator[str]:
    serve = ("--repository", repository, "--allow-python", "--http", "127.0.0.1:0", "--http-host", "policies.example")
    with serving(*serve) as (_, served):
        yield served.removeprefix("http:")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "localhost.", "127.0.0.1:1", "[::1]:8000", "192.0.2.1", "Policies.Example"]
)
def test_a_host_that_is_local_or_an_address_or_named_by_the_operator_is_served(address: str, host: str) -> None:
    assert asked(address, Host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8000", "127.0.0.1.evil.example", "", "[x"])
def test_a_host_of_another_name_is_refused(address: str, host: str) -> None:
    status, error = asked(address, Host=host)
    assert status in (400, 403)
    assert "host" in error.lower()


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1"])
def test_a_page_of_another_site_is_refused(address: str, origin: str) -> None:
    status, error = asked(address, Host=address, Origin=origin)
    assert (status, "may not use this server" in error) == (403, True)
    assert asked(address, Host=address, Origin=f"http://{address}")[0] == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_a_body_of_a_type_that_pages_may_send_to_other_sites_is_refused(address: str, kind: str) -> None:
    status, error = asked(address, "/v2/models/one/infer", body=b"{}", Host="localhost", Content_Type=kind)
    assert (status, "a body is application/json" in error) == (415, True)


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "application/octet-stream"])
def test_a_body_of_json_or_bytes_is_read(address: str, kind: str) -> None:
    status, error = asked(address, "/v2/models/one/infer", body=b"{}", Host="localhost", Content_Type=kind)
    assert (status, "inputs" in error) == (400, True)


def test_the_operator_may_allow_any_host(repository: Path) -> None:
    serve = ("--repository", repository, "--allow-python", "--http", "127.0.0.1:0", "--http-host", "*")
    with serving(*serve) as (_, served):
        assert asked(served.removeprefix("http:"), Host="any.example")[0] == 200


def test_a_body_that_is_not_encoded_as_it_says_is_refused_and_fills_no_log(tmp_path: Path) -> None:
    with opened(tmp_path, doors=("http",)) as doors:
        address = doors.addresses["http"]
        head = f"POST /v2/repository/index HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
        bodies = [
            f"Content-Encoding: {coding}\r\nContent-Length: 2\r\n\r\n{{}}" for coding in ("gzip", "br", "deflate")
        ]
        for body in (*bodies, "Transfer-Encoding: chunked\r\n\r\nxyz\r\n"):
            assert answered(address, f"{head}{body}") == 400
        refused = asked(address, "/v2/repository/index", body=b"{}", Host=address, Content_Encoding="gzip")
        assert refused == (400, "the body is not encoded as its Content-Encoding or Transfer-Encoding says")
    log = (tmp_path / "log").read_text()
    assert "ERROR" not in log
    assert "Traceback" not in log


def answered(address: str, request: str) -> int:
    """Send a request as it is; give the status."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as peer:
        peer.sendall(request.encode())
        return int(peer.makefile("rb").readline().split()[1])

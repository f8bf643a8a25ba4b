"""Addresses that other machines can reach: refused without TLS and tokens, unless the operator insists."""

import socket
from pathlib import Path

import pytest

from policybridge_server.access.addresses import host_of, is_loopback
from tests.certificates import Authority, token, write_tokens
from tests.server.access.doors import GRPC, opened, refused

DOORS = (*GRPC, "http")
LACKS = "give --tls-certificate, --tls-key and --tokens"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "example.invalid:0"])
def test_a_port_that_others_can_reach_does_not_start_without_tls_and_tokens(
    tmp_path: Path, door: str, address: str
) -> None:
    said = refused("--repository", tmp_path, f"--{door}", address)
    assert f"{address} can be reached from other machines, without TLS and without tokens; {LACKS}" in said


def test_one_of_the_two_is_not_enough(tmp_path: Path) -> None:
    server = Authority(tmp_path / "authority").issue("server")
    tls = ("--tls-certificate", server.certificate, "--tls-key", server.key)
    tokens = ("--tokens", write_tokens(tmp_path / "tokens.toml", {"a": ["read"]}))
    serve = ("--repository", tmp_path, "--grpc", "0.0.0.0:0")
    assert "from other machines, without tokens;" in refused(*serve, *tls)
    assert "from other machines, without TLS;" in refused(*serve, *tokens)


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.0.2.1", False),
        ("::ffff:192.0.2.1", False),
        ("host.invalid", False),
        ("*", False),
    ],
)
def test_loopback_is_what_this_machine_alone_can_reach(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


@pytest.mark.parametrize(("others", "alone"), [(["127.0.0.1", "::1"], True), (["127.0.0.1", "192.0.2.1"], False)])
def test_a_name_with_several_addresses_is_loopback_if_all_of_them_are(
    monkeypatch: pytest.MonkeyPatch, others: list[str], alone: bool
) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 0)) for address in others]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert is_loopback("both.example") is alone


@pytest.mark.parametrize(
    ("address", "host"), [("127.0.0.1:5", "127.0.0.1"), ("[::1]:5", "::1"), (":5", ""), ("localhost:5", "localhost")]
)
def test_the_host_of_an_address_is_found(address: str, host: str) -> None:
    assert host_of(address) == host


def test_insecure_serves_what_others_can_reach_and_warns(tmp_path: Path) -> None:
    # An address that is not loopback by its name, and that this machine alone can reach: nobody else is let in here.
    with opened(tmp_path, "--insecure", "--grpc", "[::ffff:127.0.0.1]:0", doors=()):
        assert "without tokens: every client that reaches it may use it" in (tmp_path / "log").read_text()


def test_with_tls_and_tokens_it_starts_without_a_warning(tmp_path: Path) -> None:
    server = Authority(tmp_path / "authority").issue("server")
    tls = ("--tls-certificate", server.certificate, "--tls-key", server.key)
    tokens = ("--tokens", write_tokens(tmp_path / "tokens.toml", {"a": ["read"]}))
    with opened(tmp_path, *tls, *tokens, "--grpc", "[::ffff:127.0.0.1]:0", doors=()):
        assert (tmp_path / "log").read_text() == ""
    assert token("a") not in (tmp_path / "log").read_text()

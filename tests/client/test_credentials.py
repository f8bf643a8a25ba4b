"""Certificates and tokens of the Python clients: from options, from the environment, and from `Credentials`."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from policybridge_client import Credentials, connect, open_runner
from policybridge_client.contract import Connection
from policybridge_client.grpc_channel import split_address, token_metadata
from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import (
    InvalidError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from tests.certificates import Authority, token, write_tokens
from tests.client.test_connections import SUM, ConnectionContract
from tests.conftest import command
from tests.serving import serving


class Files:
    """The files of a server and of its clients."""

    def __init__(self, folder: Path) -> None:
        ours = Authority(folder / "ours")
        self.ca, self.server, self.client = ours.ca, ours.issue("server"), ours.issue("client")
        self.tokens = write_tokens(folder / "tokens.toml", {"asker": ["evaluate"], "reader": ["read"]})
        self.token = folder / "token"
        self.token.write_text(f"\n{token('asker')}\n")
        self.reader = folder / "reader"
        self.reader.write_text(token("reader"))

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.ca, self.client.certificate, self.client.key, self.token)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "POLICYBRIDGE_TLS_CA": str(self.ca),
            "POLICYBRIDGE_TLS_CERTIFICATE": str(self.client.certificate),
            "POLICYBRIDGE_TLS_KEY": str(self.client.key),
            "POLICYBRIDGE_TOKEN_FILE": str(self.token),
        }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module", params=["grpc", "grpcio"])
def address(request: pytest.FixtureRequest, files: Files, policies: Path) -> Iterator[str]:
    """Serve over mTLS, with tokens."""
    tls = ("--tls-certificate", files.server.certificate, "--tls-key", files.server.key, "--tls-client-ca", files.ca)
    serve = ("--repository", policies, "--allow-python", f"--{request.param}", "127.0.0.1:0")
    with serving(*serve, *tls, "--tokens", files.tokens) as (_, served):
        assert served.startswith("grpcs:")
        yield served


class TestGrpcOverTls(ConnectionContract):
    @pytest.fixture
    def connection(self, address: str, files: Files) -> Iterator[Connection]:
        with closing(connect(address, timeout=60, credentials=files.credentials)) as connection:
            yield connection


def test_the_environment_names_the_files(address: str, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in files.environment.items():
        monkeypatch.setenv(name, value)
    with open_runner(address, policy="sum", features=SUM.features.specs, advice=SUM.advice, timeout=60) as runner:
        runner["a"], runner["b"] = 2, 3
        assert runner.evaluate() == 5


def test_without_a_certificate_the_server_is_unavailable(address: str, files: Files) -> None:
    shown = Credentials(ca=files.ca)
    with closing(connect(address, timeout=60, credentials=shown)) as connection, pytest.raises(UnavailableError):
        connection.check()


def test_a_server_that_no_known_authority_has_signed_is_unavailable(address: str, files: Files) -> None:
    shown = Credentials(certificate=files.client.certificate, key=files.client.key, token_file=files.token)
    with closing(connect(address, timeout=60, credentials=shown)) as connection, pytest.raises(UnavailableError):
        connection.check()


def test_without_a_token_or_the_scope_the_error_says_so(address: str, files: Files) -> None:
    mine = files.credentials
    without = Credentials(mine.ca, mine.certificate, mine.key)
    client = RepositoryClient(address, credentials=without)
    with pytest.raises(UnauthenticatedError, match="wants a token"):
        client.policies()
    client.close()
    client = RepositoryClient(address, credentials=mine)
    with pytest.raises(PermissionDeniedError, match="needs the scope read"):
        client.policies()
    client.close()


def test_the_commands_take_the_files_as_options(address: str, files: Files) -> None:
    shown = ("--tls-ca", files.ca, "--tls-certificate", files.client.certificate, "--tls-key", files.client.key)
    listing = command("policies", "list", "--server", address, *shown, "--token-file", files.reader)
    assert "sum" in subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    refused = subprocess.run(
        command("policies", "list", "--server", address, *shown), capture_output=True, text=True, check=False
    )
    assert (refused.returncode, "wants a token" in refused.stderr) == (1, True)


@pytest.mark.parametrize("target", ["example.org:50051", "192.0.2.1:50051", "[2001:db8::1]:50051", "dns:///a:1"])
def test_a_token_is_not_sent_in_plaintext_to_another_machine(files: Files, target: str) -> None:
    with pytest.raises(InvalidError, match=r"not sent in plaintext.*write grpcs:"):
        connect(f"grpc:{target}", credentials=Credentials(token_file=files.token))


@pytest.mark.parametrize(
    ("target", "sent"),
    [("127.0.0.1:1", True), ("[::1]:1", True), ("localhost:1", True), ("unix:/tmp/x", False)],
)
def test_a_token_is_sent_on_this_machine_but_not_to_a_unix_socket(files: Files, target: str, sent: bool) -> None:
    metadata = token_metadata(target, Credentials(token_file=files.token), secure=False)
    assert metadata == ((("authorization", f"Bearer {token('asker')}"),) if sent else ())


def test_what_cannot_be_used_is_said_before_anything_is_sent(files: Files, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="given together"):
        Credentials(certificate=files.client.certificate)
    with pytest.raises(InvalidError, match=r"cannot be read from .*absent"):
        connect("grpcs:localhost:1", credentials=Credentials(ca=tmp_path / "absent"))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InvalidError, match="holds no token"):
        connect("grpc:localhost:1", credentials=Credentials(token_file=tmp_path / "empty"))
    with pytest.raises(InvalidError, match="takes no certificates and no token"):
        connect("socket:x", credentials=Credentials(token_file=files.token))


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("grpcs:h:1", ("h:1", True)),
        ("grpcs://h:1", ("h:1", True)),
        ("grpc:h:1", ("h:1", False)),
        ("h:1", ("h:1", False)),
        ("grpc:unix:/x", ("unix:/x", False)),
        ("unix:/x", ("unix:/x", False)),
    ],
)
def test_an_address_says_whether_it_is_over_tls(address: str, target: tuple[str, bool]) -> None:
    assert split_address(address) == target

"""TLS, mTLS and tokens of the C++ library and the C ABI, over gRPC: who is let in, and what is refused and how."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from policybridge_core.errors import (
    InvalidError,
    PermissionDeniedError,
    PolicyBridgeError,
    UnauthenticatedError,
    UnavailableError,
)
from policybridge_serdes import ElementType, Outcome, PolicyReference, SessionOptions, Signature, TensorSpec
from tests.certificates import Authority, token, write_tokens
from tests.native.clients import NativeConnection
from tests.native.conftest import Target
from tests.native.library.test_client import KINDS
from tests.repositories import answering, write_python
from tests.serving import serving

SUM = Signature.of(
    [TensorSpec("a", ElementType.INT64), TensorSpec("b", ElementType.INT64)], TensorSpec("sum", ElementType.INT64)
)


class Files:
    """The files of a server and of its clients."""

    def __init__(self, folder: Path) -> None:
        ours, others = Authority(folder / "ours"), Authority(folder / "others")
        self.ca, self.other_ca = ours.ca, others.ca
        self.server, self.client = ours.issue("server"), ours.issue("client")
        self.stranger, self.expired = others.issue("stranger"), ours.issue("expired", expired=True)
        self.tokens = write_tokens(folder / "tokens.toml", {"asker": ["evaluate"], "reader": ["read"]})
        for name in ("asker", "reader", "nobody"):
            (folder / name).write_text(f"\n{token(name)} \n")
        (folder / "empty").write_text("\n")
        self.folder = folder

    def environment(self, **changes: Path | None) -> dict[str, str]:
        """Give the variables that name the files; ``None`` for a file takes its variable away."""
        named: Mapping[str, Path | None] = {
            "TLS_CA": self.ca,
            "TLS_CERTIFICATE": self.client.certificate,
            "TLS_KEY": self.client.key,
            "TOKEN_FILE": self.folder / "asker",
            **changes,
        }
        return {f"POLICYBRIDGE_{name}": str(path) for name, path in named.items() if path}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def address(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve over mTLS, with tokens."""
    policies = tmp_path_factory.mktemp("policies")
    write_python(policies, "sum", answering('observation["a"] + observation["b"]'))
    serve = ("--repository", policies, "--allow-python", "--grpc", "127.0.0.1:0", "--tokens", files.tokens)
    tls = ("--tls-certificate", files.server.certificate, "--tls-key", files.server.key, "--tls-client-ca", files.ca)
    with serving(*serve, *tls) as (_, served):
        assert served.startswith("grpcs:")
        yield served


Connect = Callable[[str, Mapping[str, str]], NativeConnection]


@pytest.fixture(params=["cpp-grpc", "c-grpc"])
def connect(request: pytest.FixtureRequest, native: Target, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Connect in a program with these variables of the environment."""
    program = KINDS[request.param].program(native)
    made: list[NativeConnection] = []

    def connect(address: str, environment: Mapping[str, str]) -> NativeConnection:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        made.append(NativeConnection(program, address, 60))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()


def decide(connection: NativeConnection) -> object:
    session = connection.open(PolicyReference("sum"), SUM, SessionOptions())
    session.set(0, 2)
    session.set(1, 3)
    return session.decide()


def test_a_client_with_a_certificate_and_a_token_is_served(address: str, files: Files, connect: Connect) -> None:
    connection = connect(address, files.environment())
    connection.check()
    assert decide(connection) == 5


@pytest.mark.parametrize(
    "shown",
    [
        lambda _: {"TLS_CERTIFICATE": None, "TLS_KEY": None},
        lambda files: {"TLS_CERTIFICATE": files.stranger.certificate, "TLS_KEY": files.stranger.key},
        lambda files: {"TLS_CERTIFICATE": files.expired.certificate, "TLS_KEY": files.expired.key},
        lambda files: {"TLS_CA": files.other_ca},
    ],
    ids=["none", "stranger", "expired", "other-server"],
)
def test_without_the_right_certificates_the_server_is_unavailable(
    address: str, files: Files, connect: Connect, shown: Callable[[Files], dict[str, Path | None]]
) -> None:
    connection = connect(address, files.environment(**shown(files)))
    with pytest.raises(UnavailableError):
        connection.check()
    with pytest.raises(UnavailableError):
        decide(connection)


@pytest.mark.parametrize(
    ("shown", "error"),
    [(None, UnauthenticatedError), ("nobody", UnauthenticatedError), ("reader", PermissionDeniedError)],
)
def test_without_the_right_token_each_call_is_refused_with_its_status(
    address: str, files: Files, connect: Connect, shown: str | None, error: type[PolicyBridgeError]
) -> None:
    connection = connect(address, files.environment(TOKEN_FILE=files.folder / shown if shown else None))
    with pytest.raises(error):
        decide(connection)
    with pytest.raises(error):
        connection.report_outcome("s", Outcome({}, "ok"))


@pytest.mark.parametrize(
    ("target", "shown", "message"),
    [
        ("grpc:192.0.2.1:1", {}, "a token is not sent in plaintext to 192.0.2.1:1; write grpcs:192.0.2.1:1"),
        ("grpcs:127.0.0.1:1", {"TLS_KEY": None}, "given together"),
        ("grpcs:127.0.0.1:1", {"TLS_CA": Path("/nowhere/ca.pem")}, "cannot be read from /nowhere/ca.pem: No such file"),
        ("grpc:127.0.0.1:1", {"TOKEN_FILE": Path("/nowhere/token")}, "the token cannot be read from /nowhere/token"),
        ("grpc:localhost:1", {"TOKEN_FILE": "empty"}, "holds no token"),
    ],
)
def test_files_that_cannot_be_used_are_an_error_before_anything_is_sent(
    files: Files, connect: Connect, target: str, shown: dict[str, Path | str | None], message: str
) -> None:
    changes = {name: files.folder / path if isinstance(path, str) else path for name, path in shown.items()}
    with pytest.raises(InvalidError, match=message):
        connect(target, files.environment(**changes))


@pytest.mark.parametrize("target", ["grpc:unix:/nowhere/s", "socket:/nowhere/s", "grpc:127.0.0.1:1", "grpc:[::1]:1"])
def test_a_token_is_no_obstacle_to_a_server_of_this_machine(files: Files, connect: Connect, target: str) -> None:
    connection = connect(target, files.environment())
    with pytest.raises(UnavailableError):
        connection.check()

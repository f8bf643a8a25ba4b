"""Tokens and their scopes on every TCP port, and their file."""

import hmac
import http.client
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from policybridge.v1 import policy_service_pb2, repository_service_pb2
from policybridge_client import Credentials, connect
from policybridge_core.errors import InvalidError, PermissionDeniedError, UnauthenticatedError
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec, pack
from policybridge_server.access import Access, Scope
from policybridge_server.access.tokens import Tokens
from policybridge_server.config import make_config
from policybridge_server.grpc.guard import SCOPES
from tests.certificates import token, write_tokens
from tests.server.access.doors import (
    GRPC,
    Doors,
    bearer,
    evaluated,
    listed,
    opened,
    published,
    refused,
    retired,
    rolled_back,
    session_opened,
)

SCOPES_OF = {
    "asker": ["evaluate"],
    "reader": ["read"],
    "trainer": ["publish", "read"],
    "operator": ["admin"],
}
LET_IN = {"OK", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens")


@pytest.fixture(scope="module")
def doors(folder: Path) -> Iterator[Doors]:
    file = write_tokens(folder / "tokens.toml", SCOPES_OF)
    with opened(folder, "--tokens", file, "--verbose") as served:
        yield served


@pytest.fixture(params=GRPC)
def channel(request: pytest.FixtureRequest, doors: Doors) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(doors.addresses[request.param]) as made:
        yield made


@pytest.mark.parametrize("shown", [None, "wrong-0123456789abcdef0123456789abcdef", "", "asker"])
def test_a_call_without_a_token_or_with_a_wrong_one_is_unauthenticated(
    channel: grpc.Channel, shown: str | None
) -> None:
    for call in (evaluated, session_opened, listed, published, retired):
        assert call(channel, shown) == "UNAUTHENTICATED"


@pytest.mark.parametrize("given", ["Basic YTpi", "Bearer", f"Bearer {token('asker')}, Bearer x", token("asker")])
def test_an_authorization_that_is_no_bearer_token_is_unauthenticated(channel: grpc.Channel, given: str) -> None:
    call = channel.unary_unary("/policybridge.v1.PolicyService/Evaluate", None, None)
    with pytest.raises(grpc.RpcError) as failure:
        call(b"", metadata=(("authorization", given),), timeout=60)
    assert failure.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_call_with_two_authorizations_is_unauthenticated_even_if_both_are_good(channel: grpc.Channel) -> None:
    call = channel.unary_unary("/policybridge.v1.PolicyService/Evaluate", None, None)
    both = tuple(("authorization", f"Bearer {token(client)}") for client in ("asker", "operator"))
    with pytest.raises(grpc.RpcError) as failure:
        call(b"", metadata=both, timeout=60)
    assert failure.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("client", "calls"),
    [
        ("asker", [evaluated, session_opened]),
        ("reader", [listed]),
        ("trainer", [listed, published, rolled_back]),
        ("operator", [evaluated, session_opened, listed, published, rolled_back, retired]),
    ],
)
def test_a_token_is_good_for_its_scopes_alone(channel: grpc.Channel, client: str, calls: list[object]) -> None:
    for call in (evaluated, session_opened, listed, published, rolled_back, retired):
        status = call(channel, token(client))
        assert status in LET_IN if call in calls else status == "PERMISSION_DENIED"


_INFERENCE_PROTO = Path(__file__).parents[3] / "proto/policybridge/inference/inference_service.proto"


def test_a_probe_of_the_servers_health_needs_no_token_and_hears_no_names(channel: grpc.Channel) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as failure:
        health.Check(health_pb2.HealthCheckRequest(service="nobody"))
    assert "one" not in (failure.value.details() or "")
    with pytest.raises(grpc.RpcError) as failure:
        health.List(health_pb2.HealthListRequest())
    assert failure.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_watching_and_listing_the_health_of_all_needs_the_scope_read(channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    shown = tuple(bearer(token("asker")))
    with pytest.raises(grpc.RpcError) as failure:
        next(iter(stub.Watch(health_pb2.HealthCheckRequest(), metadata=shown, timeout=60)))
    assert failure.value.code() is grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(grpc.RpcError) as failure:
        stub.List(health_pb2.HealthListRequest(), metadata=shown, timeout=60)
    assert failure.value.code() is grpc.StatusCode.PERMISSION_DENIED
    watched = stub.Watch(health_pb2.HealthCheckRequest(), metadata=tuple(bearer(token("reader"))), timeout=60)
    assert next(iter(watched)).status == health_pb2.HealthCheckResponse.SERVING
    watched.cancel()


def test_the_health_of_a_policy_whose_name_is_guessed_needs_no_token(channel: grpc.Channel) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    asked = health.Check(health_pb2.HealthCheckRequest(service="one"), timeout=60)
    assert asked.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_needs_the_scope_read(channel: grpc.Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([asked]), metadata=tuple(bearer(token("reader"))), timeout=60)
    assert answer.list_services_response.service
    with pytest.raises(grpc.RpcError) as failure:
        list(stub.ServerReflectionInfo(iter([asked]), timeout=60))
    assert failure.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_method_that_there_is_not_is_unimplemented_and_not_forbidden(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        channel.unary_unary("/policybridge.v1.PolicyService/Later", None, None)(b"", timeout=60)
    assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("method", "path", "client", "status"),
    [
        ("GET", "/v2/health/live", None, 200),
        ("GET", "/v2/health/ready", None, 200),
        ("GET", "/v2", None, 401),
        ("GET", "/v2", "nobody", 401),
        ("GET", "/v2", "asker", 403),
        ("GET", "/v2", "reader", 200),
        ("POST", "/v2/models/one/infer", None, 401),
        ("POST", "/v2/models/one/infer", "reader", 403),
        ("POST", "/v2/models/one/infer", "asker", 400),
        ("POST", "/v2/models/one/infer", "operator", 400),
    ],
)
def test_http_asks_for_the_same_scopes(doors: Doors, method: str, path: str, client: str | None, status: int) -> None:
    connection = http.client.HTTPConnection(doors.addresses["http"], timeout=60)
    headers = {"Content-Type": "application/json", **({"Authorization": f"bearer {token(client)}"} if client else {})}
    connection.request(method, path, "{}" if method == "POST" else None, headers)
    with connection.getresponse() as answer:
        json.load(answer)
        assert answer.status == status
        assert (answer.getheader("WWW-Authenticate") == "Bearer") is (status == 401)
    connection.close()


def test_a_unix_socket_needs_no_token() -> None:
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        listen = [word for door in GRPC for word in (f"--{door}", f"unix:{folder}/{door}")]
        with opened(folder, *listen, "--tokens", write_tokens(folder / "tokens.toml", SCOPES_OF), doors=()):
            for door in GRPC:
                with grpc.insecure_channel(f"unix:{folder}/{door}") as made:
                    assert listed(made) == "OK"


def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds, which asks the server each time."""
    end = monotonic() + 60
    while not holds():
        assert monotonic() < end
        sleep(0.05)


def test_tokens_that_change_count_soon_and_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    file, log = write_tokens(tmp_path / "tokens.toml", {"first": ["read"]}), tmp_path / "log"
    with opened(tmp_path, "--tokens", file, doors=GRPC) as served:
        for door in GRPC:
            with grpc.insecure_channel(served.addresses[door]) as made:
                write_tokens(file, {"first": ["read"]})
                until(lambda: listed(made, token("first")) == "OK")
                write_tokens(file, {"second": ["read"]})
                until(lambda: listed(made, token("second")) == "OK")
                assert listed(made, token("first")) == "UNAUTHENTICATED"
                file.write_text("[second")
                until(lambda: listed(made, token("second")) == "OK" and "tokens before stay" in log.read_text())


def test_an_empty_file_of_tokens_refuses_all_clients_that_it_named(tmp_path: Path) -> None:
    file = write_tokens(tmp_path / "tokens.toml", {"first": ["read"]})
    with (
        opened(tmp_path, "--tokens", file, doors=GRPC[:1]) as served,
        grpc.insecure_channel(served.addresses[GRPC[0]]) as made,
    ):
        assert listed(made, token("first")) == "OK"
        file.write_text("")
        until(lambda: listed(made, token("first")) == "UNAUTHENTICATED")


def test_a_token_is_compared_with_every_one_of_the_file_in_constant_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bool] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append(left == right)
        return compared[-1]

    tokens = Tokens(write_tokens(tmp_path / "tokens.toml", {name: ["read"] for name in ("a", "b", "c")}))
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for name in ("a", "c"):
        tokens.check([f"Bearer {token(name)}"], Scope.READ)
    with pytest.raises(UnauthenticatedError):
        tokens.check([f"Bearer {token('unknown')}"], Scope.READ)
    assert compared == [True, False, False, False, False, True, False, False, False]


def test_a_session_goes_on_when_its_token_is_taken_out(tmp_path: Path) -> None:
    file, held = write_tokens(tmp_path / "tokens.toml", {"first": ["evaluate", "read"]}), tmp_path / "token"
    held.write_text(token("first"))
    signature = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("one", ElementType.INT64))
    with opened(tmp_path, "--tokens", file, doors=GRPC) as served:
        for door in GRPC:
            write_tokens(file, {"first": ["evaluate", "read"]})
            with (
                grpc.insecure_channel(served.addresses[door]) as made,
                connect(f"grpc:{served.addresses[door]}", credentials=Credentials(token_file=held)) as connection,
            ):
                until(lambda: listed(made, token("first")) == "OK")
                session = connection.open(PolicyReference("one"), signature, SessionOptions())
                write_tokens(file, {"second": ["read"]})
                until(lambda: listed(made, token("first")) == "UNAUTHENTICATED")
                assert session.evaluate(pack(signature.features, {"x": 1}))["one"][0] == 1
                with pytest.raises(UnauthenticatedError):
                    connection.open(PolicyReference("one"), signature, SessionOptions())


def test_no_token_is_in_the_log_or_in_memory(folder: Path, channel: grpc.Channel) -> None:
    for client in ("asker", "nobody"):
        listed(channel, token(client))
    assert token("asker") not in (folder / "log").read_text()
    assert token("nobody") not in (folder / "log").read_text()
    tokens = Tokens(folder / "tokens.toml")
    assert token("asker") not in repr(vars(tokens))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a", "cannot be read"),
        (f"a = {'[' * 5000}{']' * 5000}", "values are nested too deeply in each other"),
        ('[a]\ntoken = "short"\nscopes = ["read"]', "20 or more printable ASCII characters"),
        ('[a]\ntoken = "with a space 0123456789abcdef"\nscopes = ["read"]', "without spaces"),
        ('[a]\ntoken = "0123456789abcdef0123"\nscopes = ["write"]', "admin, evaluate, follow, publish, read"),
        ('[a]\ntoken = "0123456789abcdef0123"\nscopes = []', "admin, evaluate, follow, publish, read"),
        ('[a]\ntoken = "0123456789abcdef0123"', "scopes"),
        ('[a]\ntoken = "0123456789abcdef0123"\nscopes = ["read"]\nmore = 1', "more"),
        ('[a]\ntoken = "0123456789abcdef0123"\nscopes = ["read"]\n' * 2, "cannot be read"),
        ("".join(f'[{n}]\ntoken = "0123456789abcdef0123"\nscopes = ["read"]\n' for n in "ab"), "one token twice"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_used_is_refused_without_telling_a_token(
    tmp_path: Path, text: str, said: str
) -> None:
    (file := tmp_path / "tokens.toml").touch(0o600)
    file.write_text(text)
    with pytest.raises(InvalidError, match=said) as failure:
        Tokens(file)
    assert "0123456789abcdef" not in str(failure.value)


@pytest.mark.parametrize(("mode", "usable"), [(0o600, True), (0o640, True), (0o644, False), (0o660, False)])
def test_a_file_of_tokens_that_others_can_read_or_its_group_can_write_is_refused(
    tmp_path: Path, mode: int, usable: bool
) -> None:
    file = write_tokens(tmp_path / "tokens.toml", SCOPES_OF)
    file.chmod(mode)
    if usable:
        Tokens(file)
    else:
        with pytest.raises(InvalidError, match=f"has the mode {mode:04o}"):
            Tokens(file)


def test_a_server_with_a_file_that_cannot_be_used_does_not_start(tmp_path: Path) -> None:
    said = refused("--repository", tmp_path, "--socket", tmp_path / "s", "--tokens", tmp_path / "absent")
    assert "the file of tokens" in said
    assert "No such file" in said


def access(folder: Path) -> Access:
    file = write_tokens(folder / "tokens.toml", SCOPES_OF)
    return Access(make_config(None, {"repository": [str(folder)], "socket": ["s"], "tokens": str(file)}))


def test_a_service_of_another_distribution_needs_admin_unless_it_names_its_scope(tmp_path: Path) -> None:
    rules = access(tmp_path)
    rules.scopes["/mine.Second/"] = Scope.EVALUATE
    asker = [f"Bearer {token('asker')}"]
    rules.check(asker, rules.scope_of("/mine.Second/Ask"))
    with pytest.raises(PermissionDeniedError, match="needs the scope admin"):
        rules.check(asker, rules.scope_of("/mine.First/Ask"))
    with pytest.raises(UnauthenticatedError):
        rules.check([], rules.scope_of("/mine.Second/Ask"))


def test_every_method_that_is_served_has_a_scope_in_the_table_or_is_not_implemented() -> None:
    named = set(SCOPES)
    for file in (health_pb2, policy_service_pb2, repository_service_pb2):
        for service in file.DESCRIPTOR.services_by_name.values():
            assert {f"/{service.full_name}/{method.name}" for method in service.methods} <= named
    # Its stub has the names of tritonclient's, which other tests of this process import.
    methods = set(re.findall(r"rpc (\w+)\(", _INFERENCE_PROTO.read_text()))
    others = {name for name in methods if f"/inference.GRPCInferenceService/{name}" not in named}
    # These two need admin, as all that is in no table.
    assert others == {"RepositoryModelLoad", "RepositoryModelUnload"}
    assert len(methods) > len(others)

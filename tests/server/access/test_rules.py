"""The operator's rules, asked directly: which scope a method needs, and whose word a session's outcome is."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from policybridge_core.errors import InvalidError, PermissionDeniedError, UnauthenticatedError
from policybridge_server.access.access import Access
from policybridge_server.access.tokens import Scope
from policybridge_server.config import ServerConfig
from tests.certificates import token, write_tokens

SCOPES = {"ci": ["evaluate"], "lab": ["evaluate", "report"], "boss": ["admin"]}


def rules(**options: object) -> Access:
    return Access(ServerConfig(repository=["policies"], grpc=["127.0.0.1:0"], **options))  # type: ignore[arg-type]


def bearer(name: str) -> list[str]:
    return [f"Bearer {token(name)}"]


@pytest.mark.parametrize(
    ("peer", "told"),
    [
        ("unix:", ""),
        ("unix:/run/pb.sock", ""),
        ("ipv4:127.0.0.1:5000", ""),
        ("ipv6:%5B::1%5D:5000", ""),
        ("ipv6:[::1]:5000", ""),
        ("ipv4:192.0.2.7:5000", "the address 192.0.2.7"),
        ("ipv6:%5B2001:db8::7%5D:5000", "the address 2001:db8::7"),
    ],
)
def test_without_tokens_an_outcome_is_the_word_of_its_address_unless_that_is_this_machine(peer: str, told: str) -> None:
    assert rules().reporter([], peer) == told


@pytest.mark.parametrize(
    ("authorization", "told"),
    [
        (bearer("ci"), "the token ci"),
        (bearer("lab"), ""),
        (bearer("boss"), ""),
        ([], "a client without a token"),
        (["Bearer nobody"], "a client without a token"),
    ],
)
def test_with_tokens_an_outcome_is_the_word_of_its_token_unless_that_may_report(
    tmp_path: Path, authorization: Sequence[str], told: str
) -> None:
    access = rules(tokens=write_tokens(tmp_path / "tokens.toml", SCOPES))
    assert access.reporter(authorization, "ipv4:127.0.0.1:5000") == told
    assert access.reporter(authorization, "unix:/run/pb.sock") == ""


def test_a_method_needs_its_own_scope_or_that_of_its_service_and_else_admin() -> None:
    access = rules()
    access.scopes = {"/a.A/": Scope.READ, "/a.A/Ask": Scope.EVALUATE, "/b.B/Open": None}
    asked = ("/a.A/Ask", "/a.A/Other", "/b.B/Open", "/b.B/Other", "/c.C/Any", "/a.A")
    assert [access.scope_of(method) for method in asked] == [
        Scope.EVALUATE,
        Scope.READ,
        None,
        Scope.ADMIN,
        Scope.ADMIN,
        Scope.ADMIN,
    ]


def test_a_token_is_checked_if_the_method_needs_a_scope_and_there_are_tokens(tmp_path: Path) -> None:
    open_to_all, access = rules(), rules(tokens=write_tokens(tmp_path / "tokens.toml", SCOPES))
    assert (open_to_all.asks_for_tokens, access.asks_for_tokens) == (False, True)
    open_to_all.check([], Scope.ADMIN)
    access.check([], None)
    access.check(bearer("ci"), Scope.EVALUATE)
    access.check(bearer("boss"), Scope.PUBLISH)
    for authorization in ([], ["Bearer nobody"], bearer("ci") * 2, [f"Basic {token('ci')}"], ["Bearer "]):
        with pytest.raises(UnauthenticatedError):
            access.check(authorization, Scope.EVALUATE)
    with pytest.raises(PermissionDeniedError, match="needs the scope publish; the token of ci has evaluate"):
        access.check(bearer("ci"), Scope.PUBLISH)


@pytest.mark.parametrize("given", ["tls_certificate", "tls_key", "tls_client_ca"])
def test_tls_needs_a_certificate_and_a_key(tmp_path: Path, given: str) -> None:
    with pytest.raises(InvalidError, match="TLS needs both --tls-certificate and --tls-key"):
        rules(**{given: tmp_path / "file.pem"})

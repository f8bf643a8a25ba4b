"""Bearer tokens from a file, which is read again when it changes."""

import hashlib
import hmac
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from policybridge_core.errors import InvalidError, PermissionDeniedError, UnauthenticatedError
from policybridge_core.text import printable
from policybridge_server.access.files import WatchedFiles, check_secret

_LOG = logging.getLogger(__name__)

_SHORTEST: Final = 20
"""The least characters of a token, too many to guess."""

_NAME: Final = 100
"""Characters of a name that are told."""

_PAUSE: Final = 1.0
"""Seconds between two looks at the file."""

_HOW: Final = "authorization: Bearer TOKEN"


class Scope(StrEnum):
    """A set of calls that a token permits.

    Attributes:
        EVALUATE: ask for advice, and report outcomes; of these, roll-outs need others beside, see `REPORT`.
        REPORT: report outcomes that decide a roll-out alone.
        READ: look at policies, versions, statistics and services.
        FOLLOW: take all versions with their files, as a replica does.
        PUBLISH: publish versions and set aliases.
        ADMIN: everything.

    """

    EVALUATE = "evaluate"
    REPORT = "report"
    READ = "read"
    FOLLOW = "follow"
    PUBLISH = "publish"
    ADMIN = "admin"


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[NAME]`` of the file; NAME is for people."""

    token: str
    scopes: list[str]


@dataclass(frozen=True)
class _Client:
    """A client: the digest of its token (the token itself is not kept), and its scopes."""

    name: str
    digest: bytes
    scopes: frozenset[Scope]


class Tokens:
    """The tokens of a TOML file.

        [ci]
        token = "…"
        scopes = ["evaluate", "read"]

    Args:
        path: of the file.

    Raises:
        InvalidError: the file cannot be used. No message holds a token.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._watched = WatchedFiles([path], _PAUSE)
        self._clients = _read(path)

    def check(self, authorization: Sequence[str], scope: Scope) -> None:
        """Check that a client may do what needs ``scope``.

        Args:
            authorization: the values of its headers of this name.
            scope: that of the call.

        Raises:
            UnauthenticatedError: there is no token, or it is not in the file.
            PermissionDeniedError: the token lacks the scope.

        """
        client = self._find(_token(authorization))
        if client is None:
            raise UnauthenticatedError("this server does not know the token")
        if scope not in client.scopes and Scope.ADMIN not in client.scopes:
            has = ", ".join(sorted(client.scopes))
            raise PermissionDeniedError(f"the call needs the scope {scope}; the token of {client.name} has {has}")

    def reporter(self, authorization: Sequence[str]) -> str:
        """Name the client whose word an outcome is; empty: its token has the scope `report`."""
        try:
            client = self._find(_token(authorization))
        except UnauthenticatedError:
            client = None
        if client is None:
            return "a client without a token"
        trusted = not client.scopes.isdisjoint((Scope.REPORT, Scope.ADMIN))
        return "" if trusted else f"the token {printable(client.name)[:_NAME]}"

    def _find(self, token: str) -> _Client | None:
        if self._watched.changed():
            self.reload()
        digest = _digest(token)
        owner = None
        for client in self._clients:
            # All are compared, each in constant time, so that the time reveals nothing.
            if hmac.compare_digest(client.digest, digest):
                owner = client
        return owner

    def reload(self) -> None:
        """Read the file; if it cannot be used, keep the old tokens."""
        try:
            self._clients = _read(self._path)
            _LOG.info("the file of tokens has changed; it has %d", len(self._clients))
        except InvalidError as error:
            _LOG.warning("the file of tokens has changed and cannot be used; the tokens before stay: %s", error)


def _token(authorization: Sequence[str]) -> str:
    if not authorization:
        raise UnauthenticatedError(f"this server wants a token; send {_HOW}")
    kind, _, token = authorization[0].partition(" ")
    if len(authorization) > 1 or kind.lower() != "bearer" or not token:
        raise UnauthenticatedError(f"the authorization is not one bearer token; send {_HOW}")
    return token.strip()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _read(path: Path) -> list[_Client]:
    check_secret(path, "the file of tokens")
    try:
        entries = msgspec.toml.decode(path.read_bytes(), type=dict[str, _Entry])
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise InvalidError(f"the file of tokens {path} cannot be read: {error}") from error
    except RecursionError as error:
        raise InvalidError(f"the file of tokens {path}: values are nested too deeply in each other") from error
    clients = [_client(path, name, entry) for name, entry in entries.items()]
    if len({client.digest for client in clients}) < len(clients):
        raise InvalidError(f"the file of tokens {path} has one token twice")
    return clients


def _client(path: Path, name: str, entry: _Entry) -> _Client:
    token = entry.token
    if len(token) < _SHORTEST or not (token.isascii() and token.isprintable()) or " " in token:
        raise InvalidError(
            f"{path}: the token of [{name}] is not {_SHORTEST} or more printable ASCII characters without spaces; "
            "`openssl rand -hex 32` makes one"
        )
    known = {str(scope) for scope in Scope}
    if not entry.scopes or not known.issuperset(entry.scopes):
        # The value is not quoted: it might be the token, in the wrong place.
        raise InvalidError(f"{path}: the scopes of [{name}] are not some of {', '.join(sorted(known))}")
    return _Client(name, _digest(token), frozenset(map(Scope, entry.scopes)))

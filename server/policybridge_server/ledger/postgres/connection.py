"""Connections to a database, and its errors as ours."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from policybridge_core.errors import InvalidError, UnavailableError
from policybridge_server.ledger.place import DatabaseUrl
from policybridge_server.ledger.postgres.text import adapt_text

SCHEMA: Final = "policybridge"
"""The schema of the tables. Every transaction names it, so that poolers may give each a connection of their choice."""

_DEFAULTS: Final = {
    "application_name": "policybridge",
    "connect_timeout": "5",
    # Seconds, or milliseconds, after which an unreachable machine is noticed.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "client_encoding": "UTF8",
}
"""Defaults of libpq's options, if the URL does not give them."""

_FATAL: Final = re.compile(
    r"FATAL:\s+(?!the database system is|sorry, too many|remaining connection slots|terminating)"
)
"""Errors of a database that a later try will not cure."""

Connected = psycopg.Connection[dict[str, Any]]


class RefusedError(UnavailableError):
    """The database refuses: a wrong password, a missing right, tables of a newer version."""


def connect(url: DatabaseUrl) -> Connected:
    """Connect to a database.

    Raises:
        InvalidError: the URL cannot be read.
        RefusedError: the database refuses.
        UnavailableError: there is no database now.

    """
    try:
        given = conninfo_to_dict(url.secret)
    except psycopg.Error:
        # libpq's message quotes the wrong part of the URL, which may be a part of the password.
        raise InvalidError(f"the URL of the ledger's database ({url}) cannot be read by libpq") from None
    options: dict[str, Any] = {name: value for name, value in _DEFAULTS.items() if name not in given}
    with mapped(url):
        connection = psycopg.connect(
            url.secret, autocommit=True, prepare_threshold=None, row_factory=dict_row, **options
        )
    adapt_text(connection)
    return connection


@contextmanager
def mapped(url: DatabaseUrl) -> Iterator[None]:
    """Raise the database's errors as ours.

    Raises:
        RefusedError: a right is missing.
        UnavailableError: it cannot be used now.

    """
    try:
        yield
    except psycopg.Error as error:
        text = _told(url, error)
        refused = isinstance(error, psycopg.errors.InsufficientPrivilege) or _FATAL.search(text)
        kind = RefusedError if refused else UnavailableError
        raise kind(f"the ledger {url} cannot be used: {text}") from None


def _told(url: DatabaseUrl, error: psycopg.Error) -> str:
    """Give an error's first lines, without the password."""
    text = " ".join(str(error).split()) or type(error).__name__
    for name in ("password", "sslpassword"):
        secret = conninfo_to_dict(url.secret).get(name)
        text = text.replace(str(secret), "***") if secret else text
    return text


@contextmanager
def transaction(connection: Connected, *settings: str) -> Iterator[None]:
    """Commit all statements of the block, or none of them; they find the ledger's tables."""
    with connection.transaction():
        connection.execute(";".join(f"SET LOCAL {each}" for each in (f"search_path = {SCHEMA}", *settings)))
        yield

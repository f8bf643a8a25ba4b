"""The place of a ledger: a file, or the URL of a database."""

import glob
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode

from policybridge_core.errors import InvalidError

_SCHEMES: Final = ("postgresql://", "postgres://")

_URL: Final = re.compile(
    r"postgres(?:ql)?://"
    r"(?:(?P<user>[^@:/?#\s]*)(?P<password>:[^@/?#\s]*)?@)?"
    r"(?P<hosts>[^@/?#\s]*)(?:/(?P<database>[^@/?#\s]*))?(?:\?(?P<options>[^?#\s]*))?"
)

_SECRET: Final = ("password", "sslpassword")
_LOCATING: Final = ("host", "port", "user", "dbname")
"""Options of a URL that locate the database. Others may be secret in future versions of libpq."""


@dataclass(frozen=True)
class DatabaseUrl:
    """The URL of a database. Its text has no password, and only options that locate the database.

    Attributes:
        secret: the whole URL, only for libpq.

    """

    secret: str = field(repr=False)

    @property
    def has_password(self) -> bool:
        """Whether a password is part of the URL."""
        match = _URL.fullmatch(self.secret)
        return match is None or bool(match["password"]) or any(name in _SECRET for name, _ in _options(match))

    def __str__(self) -> str:
        match = _URL.fullmatch(self.secret)
        if match is None:
            return "postgresql://…"
        user = f"{match['user']}@" if match["user"] else ""
        database = f"/{match['database']}" if match["database"] else ""
        shown = [(name, value) for name, value in _options(match) if name in _LOCATING]
        options = f"?{urlencode(shown, safe='/')}" if shown else ""
        return f"postgresql://{user}{match['hosts']}{database or '/' * bool(options)}{options}"


Place = Path | DatabaseUrl
"""Of a ledger."""


def _options(match: re.Match[str]) -> list[tuple[str, str]]:
    return parse_qsl(match["options"] or "", keep_blank_values=True)


def parse_place(text: str | Path) -> Place:
    """Give the place that ``text`` names.

    Raises:
        InvalidError: it is the URL of a database and cannot be read. The message does not repeat it, because parts of
            the password may be anywhere in it.

    """
    if isinstance(text, Path) or not text.lower().startswith(_SCHEMES):
        return Path(text)
    if _URL.fullmatch(text) is None:
        raise InvalidError(
            "the URL of the ledger's database cannot be read: postgresql://USER@HOST:PORT/DATABASE is right, with all "
            "but letters, digits and -._~ written as %XX"
        )
    return DatabaseUrl(text)


def check_shown(text: str) -> str:
    """Check a place that is an argument of a command, which every user of the machine can read.

    Raises:
        InvalidError: it has a password, or it cannot be read.

    """
    place = parse_place(text)
    if isinstance(place, DatabaseUrl) and place.has_password:
        raise InvalidError(
            f"the URL of the ledger has a password, which `ps` shows to every user; write {place}, and give the "
            "password in ~/.pgpass or by PGPASSWORD"
        )
    return text


def expand(texts: Iterable[str]) -> list[str]:
    """Give the places that ``texts`` name; a pattern such as ``runs-*.db`` names all files that fit it, in order.

    Raises:
        InvalidError: no file fits a pattern.

    """
    files: list[str] = []
    for text in texts:
        fitting = [text]
        if isinstance(parse_place(text), Path) and glob.has_magic(text) and not Path(text).exists():
            fitting = sorted(glob.glob(text))  # noqa: PTH207 - the pattern may begin anywhere
            if not fitting:
                raise InvalidError(f"no file fits {text!r}")
        files += fitting
    return list(dict.fromkeys(files))

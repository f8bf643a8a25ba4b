"""The page itself: one self-contained HTML document with its style and its script."""

import base64
import hashlib
from importlib.resources import files
from typing import Final, NamedTuple

_STYLE: Final = "/* the style */"
_SCRIPT: Final = "/* the script */"


class Document(NamedTuple):
    """The page's bytes, and the headers that they are sent with."""

    body: bytes
    headers: dict[str, str]


def make_document() -> Document:
    """Put the page together.

    The policy of its content (CSP) lets a browser run only this script and style, and ask only this server:
    any client that may publish or compile can set the names on the page.
    """
    folder = files(__package__).joinpath("static")
    html, style, script = ((folder / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    body = html.replace(_STYLE, style).replace(_SCRIPT, script)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return Document(body.encode(), headers)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

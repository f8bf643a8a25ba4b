"""The paths of the page: `/` gives the page, `/page/…` its data as JSON."""

import base64
import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from policybridge_core.errors import NotFoundError
from policybridge_server.budget import PEER, PeerBudget
from policybridge_server.page.history import History
from policybridge_server.page.records import Records
from policybridge_server.page.runs import shown_runs
from policybridge_server.page.state import whole_state
from policybridge_server.transports.contract import Host

_Read = TypeVar("_Read")

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


class Page:
    """Serves the page of a server, and its data.

    Args:
        host: the server.

    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._document = make_document()
        self._records = Records(host.config)
        self._history = host.shared(History, lambda: History(host))

    def routes(self) -> list[web.RouteDef]:
        """Give all paths."""
        return [
            web.get("/", self._page),
            web.get("/page/state", self._state),
            web.get("/page/history", self._past),
            web.get("/page/ledger", self._ledger),
            web.get("/page/sessions", self._sessions),
            web.get("/page/sessions/{session}", self._session),
            web.get("/page/rollouts/{policy}", self._rollout),
            web.get("/page/runs", self._runs),
        ]

    async def _page(self, request: web.Request) -> web.Response:  # noqa: ARG002
        body, headers = self._document
        return web.Response(body=body, headers=headers, content_type="text/html", charset="utf-8")

    async def _state(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return _json(await whole_state(self._host))

    async def _past(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return _json(self._history.to_json())

    async def _ledger(self, request: web.Request) -> web.Response:
        return _json(await _read(request, self._records.ledger))

    async def _sessions(self, request: web.Request) -> web.Response:
        return _json(await _read(request, lambda: self._records.sessions(request.query)))

    async def _session(self, request: web.Request) -> web.Response:
        session = request.match_info["session"]
        return _json(await _read(request, lambda: self._records.session(session, request.query)))

    async def _rollout(self, request: web.Request) -> web.Response:
        policy = self._host.opener.engine.repository.policy(request.match_info["policy"])
        rollout = policy.rollout
        if rollout is None:
            raise NotFoundError(f"no version of {policy.name!r} was ever rolled out")
        return _json(await _read(request, lambda: self._records.rollout(policy.name, rollout)))

    async def _runs(self, request: web.Request) -> web.Response:
        return _json(await _read(request, lambda: shown_runs(self._host.config.runs)))


async def _read(request: web.Request, read: Callable[[], _Read]) -> _Read:
    peer: PeerBudget = request[PEER]
    return await peer.reading.run(read)


def _json(value: Any) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), content_type="application/json", headers={"Cache-Control": "no-store"}
    )

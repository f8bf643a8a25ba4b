"""Transport `http`: the protocol's REST paths with JSON bodies, by aiohttp, on the loop thread."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from policybridge.inference import inference_service_pb2 as pb
from policybridge_core.errors import InvalidError, PolicyBridgeError, Status, UnavailableError, UnsupportedError
from policybridge_server.open_inference.inference import shared_inference
from policybridge_server.open_inference.json import metadata_to_json, request_from_json, response_to_json
from policybridge_server.open_inference.metadata import Metadata
from policybridge_server.open_inference.request import read_request
from policybridge_server.transports.contract import Host
from policybridge_server.transports.running import Running

_LOG = logging.getLogger(__name__)

_HTTP: Final = {
    Status.INVALID_ARGUMENT: 400,
    Status.FAILED_PRECONDITION: 400,
    Status.NOT_FOUND: 404,
    Status.RESOURCE_EXHAUSTED: 413,
    Status.UNIMPLEMENTED: 501,
    Status.UNAVAILABLE: 503,
    Status.DEADLINE_EXCEEDED: 504,
}
"""Every other status is a failure of the server, 500."""

_LAST_WORDS: Final = 1.0
"""Seconds for the replies to requests that a stop has ended."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpTransport:
    """Listens on one address, ``HOST:PORT``."""

    def __init__(self, address: str) -> None:
        self._asked = address
        self._address = address
        self._running: Running[asyncio.Task[None]] = Running()

    @property
    def address(self) -> str:
        """The address with the real port."""
        return f"http:{self._address}"

    async def start(self, host: Host) -> None:
        """Listen; an address that somebody else has is an error."""
        name, _, port = self._asked.rpartition(":")
        if not (name and port.isascii() and port.isdigit()):
            raise InvalidError(f"cannot listen on {self._asked!r}: an address for HTTP is HOST:PORT")
        application = web.Application(client_max_size=host.config.message_limit, middlewares=[self._mapped])
        application.add_routes(_Paths(host).routes())
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=_LAST_WORDS)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, name.strip("[]"), int(port)).start()
        except (OSError, OverflowError) as error:
            await self._runner.cleanup()
            raise UnavailableError(f"cannot listen on {self._asked}: {error}") from error
        self._address = f"{name}:{self._runner.addresses[0][1]}"

    async def stop(self, grace: float) -> None:
        """Let running requests end for ``grace`` seconds, then end them; the opener refuses new ones meanwhile."""
        # The runner itself ends the requests that are left.
        await self._running.drain(grace, lambda _: None)
        await self._runner.cleanup()

    @web.middleware
    async def _mapped(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._running.add(request.task)
        try:
            return await handler(request)
        except PolicyBridgeError as error:
            return _failure(_HTTP.get(error.status, 500), str(error))
        except web.HTTPException as error:
            return _failure(error.status, f"{request.method} {request.path}: {error.reason}")
        except Exception as error:
            _LOG.exception("a request failed")
            return _failure(500, f"the server failed: {error!r}")
        finally:
            self._running.discard(request.task)


def _failure(status: int, message: str) -> web.Response:
    return _reply({"error": message}, status)


def _reply(body: object, status: int = 200) -> web.Response:
    text = body if isinstance(body, str) else json.dumps(body)
    return web.Response(text=text, status=status, content_type="application/json")


class _Paths:
    def __init__(self, host: Host) -> None:
        self._inference = shared_inference(host)
        self._metadata = Metadata(host.opener, self._inference.states)

    def routes(self) -> list[web.RouteDef]:
        """Give all paths."""
        routes = [
            web.get("/v2", self._server),
            web.get("/v2/health/live", self._live),
            web.get("/v2/health/ready", self._ready),
        ]
        for model in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            routes += [
                web.get(model, self._model),
                web.get(f"{model}/ready", self._model_ready),
                web.post(f"{model}/infer", self._infer),
            ]
        return routes

    async def _server(self, request: web.Request) -> web.Response:  # noqa: ARG002
        server = self._metadata.server()
        return _reply({"name": server.name, "version": server.version, "extensions": list(server.extensions)})

    async def _live(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return _reply({"live": True})

    async def _ready(self, request: web.Request) -> web.Response:  # noqa: ARG002
        ready = self._metadata.is_ready()
        return _reply({"ready": ready}, 200 if ready else 503)

    async def _model(self, request: web.Request) -> web.Response:
        return _reply(metadata_to_json(await self._metadata.model(*_model(request))))

    async def _model_ready(self, request: web.Request) -> web.Response:
        ready = (await self._metadata.model_ready(*_model(request))).ready
        return _reply({"name": request.match_info["name"], "ready": ready}, 200 if ready else 503)

    async def _infer(self, request: web.Request) -> web.Response:
        if "Inference-Header-Content-Length" in request.headers:
            raise UnsupportedError("tensors in binary are not taken over HTTP; send JSON, or ask over gRPC")
        message = request_from_json(*_model(request), await request.read())
        response = await self._inference.infer(read_request(message))
        return _reply(response_to_json(pb.ModelInferResponse.FromString(response)))


def _model(request: web.Request) -> tuple[str, str]:
    return request.match_info["name"], request.match_info.get("version", "")

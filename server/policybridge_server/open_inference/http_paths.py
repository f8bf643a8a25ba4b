"""The protocol's paths over HTTP, with Triton's for the repository, configurations and statistics."""

import json
from typing import Any, Final, NoReturn

import msgspec
from aiohttp import web
from google.protobuf.message import Message

from policybridge.inference import inference_service_pb2 as pb
from policybridge_core.errors import UnsupportedError
from policybridge_serdes.checks import decode_json
from policybridge_server.budget import PEER
from policybridge_server.open_inference.binary import HEADER, split_body
from policybridge_server.open_inference.http_body import BODY
from policybridge_server.open_inference.http_request import HttpRequest, request_from_json
from policybridge_server.open_inference.http_response import response_to_json, to_plain
from policybridge_server.open_inference.inference import Inference
from policybridge_server.open_inference.metadata import EXTENSIONS, Metadata
from policybridge_server.open_inference.request import read_request

_SLOW_JSON: Final = 1 << 14
"""Bytes. Longer JSON is read in a thread, so that other clients do not wait."""

_ABSENT: Final = ("systemsharedmemory", "cudasharedmemory", "trace", "logging")


class _IndexBody(msgspec.Struct):
    ready: bool = False


class _LoadBody(msgspec.Struct):
    parameters: dict[str, Any] = {}


_INDEX_BODY: Final = msgspec.json.Decoder(_IndexBody)
_LOAD_BODY: Final = msgspec.json.Decoder(_LoadBody)


class Paths:
    """Answers the requests to all paths. Errors are raised; the transport makes them replies.

    Args:
        inference: answers the requests to models.
        metadata: answers the others.

    """

    def __init__(self, inference: Inference, metadata: Metadata) -> None:
        self._inference = inference
        self._metadata = metadata

    def routes(self) -> list[web.RouteDef]:
        """Give all paths."""
        routes = [
            web.get("/v2", self._server),
            web.get("/v2/", self._server),
            web.get("/v2/health/live", self._live),
            web.get("/v2/health/ready", self._ready),
            web.get("/v2/models/stats", self._statistics),
            web.post("/v2/repository/index", self._index),
            web.post("/v2/repository/models/{name}/load", self._load),
            web.post("/v2/repository/models/{name}/unload", self._unload),
        ]
        for model in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            routes += [
                web.get(model, self._model),
                web.get(f"{model}/ready", self._model_ready),
                web.get(f"{model}/config", self._config),
                web.get(f"{model}/stats", self._statistics),
                web.post(f"{model}/infer", self._infer),
            ]
        return routes + [web.route("*", f"/v2/{name}{{rest:.*}}", self._absent) for name in _ABSENT]

    async def _server(self, request: web.Request) -> web.Response:  # noqa: ARG002
        server = to_plain(self._metadata.server())
        # Over gRPC tensors are bytes without an extension.
        return reply({**server, "extensions": sorted(("binary_tensor_data", *EXTENSIONS))})

    async def _live(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return reply({"live": True})

    async def _ready(self, request: web.Request) -> web.Response:  # noqa: ARG002
        ready = self._metadata.is_ready()
        return reply({"ready": ready}, 200 if ready else 503)

    async def _model(self, request: web.Request) -> web.Response:
        return _written(await self._metadata.model(*_model(request)))

    async def _model_ready(self, request: web.Request) -> web.Response:
        ready = (await self._metadata.model_ready(*_model(request))).ready
        return reply({"name": request.match_info["name"], "ready": ready}, 200 if ready else 503)

    async def _config(self, request: web.Request) -> web.Response:
        return _written((await self._metadata.config(*_model(request))).config)

    async def _statistics(self, request: web.Request) -> web.Response:
        return _written(self._metadata.statistics(*_model(request)))

    async def _index(self, request: web.Request) -> web.Response:
        body = decode_json(_INDEX_BODY, request[BODY] or b"{}", "a request for the repository's index")
        return reply(to_plain(self._metadata.index(ready=body.ready))["models"])

    async def _load(self, request: web.Request) -> web.Response:
        body = decode_json(_LOAD_BODY, request[BODY] or b"{}", "a request to load a model")
        message = pb.RepositoryModelLoadRequest(model_name=request.match_info["name"])
        for name in body.parameters:
            message.parameters[name].SetInParent()
        return _written(await self._metadata.load(message))

    async def _unload(self, request: web.Request) -> NoReturn:
        self._metadata.unload(pb.RepositoryModelUnloadRequest(model_name=request.match_info["name"]))

    async def _absent(self, request: web.Request) -> NoReturn:
        raise UnsupportedError(
            f"{request.path}: this server has no shared memory, and no settings of traces and logs that clients may "
            "change; `/v2` names its extensions"
        )

    async def _infer(self, request: web.Request) -> web.Response:
        head, binary = split_body(request.headers.getall(HEADER, []), request[BODY])
        if len(head) > _SLOW_JSON:
            read = await request[PEER].work.run(request_from_json, *_model(request), head, binary)
        else:
            read = request_from_json(*_model(request), head, binary)
        response = await self._inference.infer(read_request(read.message, read.contents))
        return _answer(pb.ModelInferResponse.FromString(response), read)


def _model(request: web.Request) -> tuple[str, str]:
    return request.match_info.get("name", ""), request.match_info.get("version", "")


def _answer(message: pb.ModelInferResponse, request: HttpRequest) -> web.Response:
    text, tensors = response_to_json(message, request)
    if not tensors:
        return reply(text)
    head = text.encode()
    return web.Response(
        body=b"".join([head, *tensors]),
        content_type="application/octet-stream",
        headers={HEADER: str(len(head))},
    )


def _written(message: Message) -> web.Response:
    return reply(to_plain(message))


def reply(body: object, status: int = 200) -> web.Response:
    """Make a JSON response from JSON text, or from an object to encode."""
    text = body if isinstance(body, str) else json.dumps(body)
    return web.Response(text=text, status=status, content_type="application/json")

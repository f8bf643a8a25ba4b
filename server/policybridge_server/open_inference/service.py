"""The GRPCInferenceService: the protocol over gRPC."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NoReturn

import grpc.aio

from policybridge.inference import inference_service_pb2 as pb
from policybridge.inference.inference_service_pb2_grpc import (
    GRPCInferenceServiceServicer,
    add_GRPCInferenceServiceServicer_to_server,
)
from policybridge_core.errors import PolicyBridgeError
from policybridge_server.grpc.calls import Calls, Context, guarded
from policybridge_server.grpc.http2.server import Http2Server
from policybridge_server.grpc.unary import UnaryCall
from policybridge_server.open_inference.inference import Inference, shared_inference
from policybridge_server.open_inference.metadata import Metadata
from policybridge_server.open_inference.request import read_request
from policybridge_server.transports.contract import Host

_MODEL_INFER: Final = "/inference.GRPCInferenceService/ModelInfer"
_PENDING: Final = 256
"""Requests of one stream that are evaluated at once; the client's next ones wait in its connection."""

_Answering = asyncio.Task[pb.ModelStreamInferResponse]


class InferenceServicer(GRPCInferenceServiceServicer):
    """Serves one transport.

    Args:
        inference: answers inference.
        metadata: answers everything else.

    """

    def __init__(self, inference: Inference, metadata: Metadata) -> None:
        self._inference = inference
        self._metadata = metadata

    async def ServerLive(self, _request: pb.ServerLiveRequest, _context: Context) -> pb.ServerLiveResponse:  # noqa: N802
        """Say that the process answers."""
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, _request: pb.ServerReadyRequest, _context: Context) -> pb.ServerReadyResponse:  # noqa: N802
        """Say whether new sessions are taken."""
        return pb.ServerReadyResponse(ready=self._metadata.is_ready())

    async def ModelReady(self, request: pb.ModelReadyRequest, _context: Context) -> pb.ModelReadyResponse:  # noqa: N802
        """Say whether a version would answer."""
        return pb.ModelReadyResponse(ready=await self._metadata.is_model_ready(request.name, request.version))

    async def ServerMetadata(  # noqa: N802
        self, _request: pb.ServerMetadataRequest, _context: Context
    ) -> pb.ServerMetadataResponse:
        """Describe this server."""
        return self._metadata.server()

    async def ModelMetadata(  # noqa: N802
        self, request: pb.ModelMetadataRequest, _context: Context
    ) -> pb.ModelMetadataResponse:
        """Give a model's inputs and outputs."""
        return await self._metadata.model(request.name, request.version)

    async def ModelConfig(self, request: pb.ModelConfigRequest, _context: Context) -> pb.ModelConfigResponse:  # noqa: N802
        """Give a model's configuration."""
        return pb.ModelConfigResponse(config=await self._metadata.config(request.name, request.version))

    async def ModelStatistics(  # noqa: N802
        self, request: pb.ModelStatisticsRequest, _context: Context
    ) -> pb.ModelStatisticsResponse:
        """Give what was counted."""
        return self._metadata.statistics(request.name, request.version)

    async def RepositoryIndex(  # noqa: N802
        self, request: pb.RepositoryIndexRequest, _context: Context
    ) -> pb.RepositoryIndexResponse:
        """List all versions."""
        return self._metadata.index(ready=request.ready)

    async def RepositoryModelLoad(  # noqa: N802
        self, request: pb.RepositoryModelLoadRequest, _context: Context
    ) -> pb.RepositoryModelLoadResponse:
        """Make sure that the newest version is loaded."""
        await self._metadata.load(request)
        return pb.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(self, request: pb.RepositoryModelUnloadRequest, _context: Context) -> NoReturn:  # noqa: N802
        """Refuse."""
        self._metadata.unload(request)

    async def ModelInfer(self, request: pb.ModelInferRequest, _context: Context) -> pb.ModelInferResponse:  # noqa: N802
        """Answer one request."""
        return await self._infer(request)

    async def _infer(self, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
        return pb.ModelInferResponse.FromString(await self._inference.infer(read_request(request)))

    async def ModelStreamInfer(  # noqa: N802
        self, requests: AsyncIterator[pb.ModelInferRequest], _context: Context
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        """Answer requests in their order; an error is an answer too."""
        answering: asyncio.Queue[_Answering | None] = asyncio.Queue()
        room = asyncio.Semaphore(_PENDING)
        reading = asyncio.create_task(self._read(requests, answering, room))
        try:
            while (task := await answering.get()) is not None:
                yield await task
                room.release()
            await reading
        finally:
            reading.cancel()
            _cancel(answering)

    async def _read(
        self,
        requests: AsyncIterator[pb.ModelInferRequest],
        answering: "asyncio.Queue[_Answering | None]",
        room: asyncio.Semaphore,
    ) -> None:
        try:
            async for request in requests:
                await room.acquire()
                answering.put_nowait(asyncio.create_task(self._in_stream(request)))
        finally:
            answering.put_nowait(None)

    async def _in_stream(self, request: pb.ModelInferRequest) -> pb.ModelStreamInferResponse:
        request_id = request.id
        try:
            return pb.ModelStreamInferResponse(infer_response=await self._infer(request))
        except PolicyBridgeError as error:
            return pb.ModelStreamInferResponse(
                error_message=str(error) or type(error).__name__, infer_response=pb.ModelInferResponse(id=request_id)
            )


def _cancel(answering: "asyncio.Queue[_Answering | None]") -> None:
    while not answering.empty():
        task = answering.get_nowait()
        if task is not None:
            task.cancel()


def add_to_server(server: grpc.aio.Server, host: Host, calls: Calls) -> None:
    """Serve GRPCInferenceService on ``server``."""
    inference = shared_inference(host)
    servicer = InferenceServicer(inference, Metadata(host.opener, inference.states))
    add_GRPCInferenceServiceServicer_to_server(servicer, guarded(server, calls))
    if isinstance(server, Http2Server):
        server.add_call(_MODEL_INFER, lambda stream: UnaryCall(stream, inference, calls, host.loop))

"""The GRPCInferenceService: the protocol over gRPC."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import grpc.aio

from policybridge.inference import inference_service_pb2 as pb
from policybridge.inference.inference_service_pb2_grpc import (
    GRPCInferenceServiceServicer,
    add_GRPCInferenceServiceServicer_to_server,
)
from policybridge_core.errors import PolicyBridgeError
from policybridge_server.grpc.calls import Calls, Context
from policybridge_server.grpc.malformed import careful
from policybridge_server.open_inference.describing import Describing
from policybridge_server.open_inference.inference import Inference, shared_inference
from policybridge_server.transports.contract import Host

_PENDING: Final = 256
"""Requests of one stream that are evaluated at once; the client's next ones wait in its connection."""

_Answering = asyncio.Task[pb.ModelStreamInferResponse]


class InferenceServicer(GRPCInferenceServiceServicer):
    """Serves one port.

    Args:
        inference: answers inference.
        describing: answers everything else.
        calls: those that run.

    """

    def __init__(self, inference: Inference, describing: Describing, calls: Calls) -> None:
        self._inference = inference
        self._describing = describing
        self._calls = calls

    async def ServerLive(  # noqa: N802
        self,
        request: pb.ServerLiveRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.ServerLiveResponse:
        """Say that the process answers."""
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(  # noqa: N802
        self,
        request: pb.ServerReadyRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.ServerReadyResponse:
        """Say whether new sessions are taken."""
        return pb.ServerReadyResponse(ready=self._describing.is_ready())

    async def ModelReady(self, request: pb.ModelReadyRequest, context: Context) -> pb.ModelReadyResponse:  # noqa: N802
        """Say whether a version would answer."""
        async with self._calls.mapped(context):
            return pb.ModelReadyResponse(ready=await self._describing.is_model_ready(request.name, request.version))
        raise AssertionError("abort always raises")

    async def ServerMetadata(  # noqa: N802
        self,
        request: pb.ServerMetadataRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.ServerMetadataResponse:
        """Say what this server is."""
        return self._describing.server()

    async def ModelMetadata(  # noqa: N802
        self, request: pb.ModelMetadataRequest, context: Context
    ) -> pb.ModelMetadataResponse:
        """Give a model's inputs and outputs."""
        async with self._calls.mapped(context):
            return await self._describing.metadata(request.name, request.version)
        raise AssertionError("abort always raises")

    async def ModelConfig(self, request: pb.ModelConfigRequest, context: Context) -> pb.ModelConfigResponse:  # noqa: N802
        """Give a model's configuration."""
        async with self._calls.mapped(context):
            return pb.ModelConfigResponse(config=await self._describing.config(request.name, request.version))
        raise AssertionError("abort always raises")

    async def ModelStatistics(  # noqa: N802
        self, request: pb.ModelStatisticsRequest, context: Context
    ) -> pb.ModelStatisticsResponse:
        """Give what was counted."""
        async with self._calls.mapped(context):
            return self._describing.statistics(request.name, request.version)
        raise AssertionError("abort always raises")

    async def RepositoryIndex(  # noqa: N802
        self, request: pb.RepositoryIndexRequest, context: Context
    ) -> pb.RepositoryIndexResponse:
        """List all versions."""
        async with self._calls.mapped(context):
            return self._describing.index(ready=request.ready)
        raise AssertionError("abort always raises")

    async def RepositoryModelLoad(  # noqa: N802
        self, request: pb.RepositoryModelLoadRequest, context: Context
    ) -> pb.RepositoryModelLoadResponse:
        """Make sure that the newest version is loaded."""
        async with self._calls.mapped(context):
            await self._describing.load(request)
            return pb.RepositoryModelLoadResponse()
        raise AssertionError("abort always raises")

    async def RepositoryModelUnload(  # noqa: N802
        self, request: pb.RepositoryModelUnloadRequest, context: Context
    ) -> pb.RepositoryModelUnloadResponse:
        """Refuse."""
        async with self._calls.mapped(context):
            self._describing.unload(request)
        raise AssertionError("abort always raises")

    async def ModelInfer(self, request: pb.ModelInferRequest, context: Context) -> pb.ModelInferResponse:  # noqa: N802
        """Answer one request."""
        async with self._calls.mapped(context):
            return await self._inference.infer(request)
        raise AssertionError("abort always raises")

    async def ModelStreamInfer(  # noqa: N802
        self, requests: AsyncIterator[pb.ModelInferRequest], context: Context
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        """Answer requests in their order; an error is an answer too."""
        async with self._calls.mapped(context):
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
            return pb.ModelStreamInferResponse(infer_response=await self._inference.infer(request))
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
    describing = Describing(host.opener, inference.served)
    add_GRPCInferenceServiceServicer_to_server(InferenceServicer(inference, describing, calls), careful(server))

"""The GRPCInferenceService: the protocol over gRPC."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import grpc.aio

from policybridge.inference import inference_service_pb2 as pb
from policybridge.inference.inference_service_pb2_grpc import add_GRPCInferenceServiceServicer_to_server
from policybridge_core.errors import PolicyBridgeError
from policybridge_server.grpc.calls import Calls, Method, add_service
from policybridge_server.grpc.error_details import message_of
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


def add_to_server(server: grpc.aio.Server, host: Host, calls: Calls) -> None:
    """Serve GRPCInferenceService on ``server``."""
    inference = shared_inference(host)
    metadata, answers = Metadata(host.opener, inference.states), _Answers(inference)
    methods: dict[str, Method] = {
        "ServerLive": lambda _: pb.ServerLiveResponse(live=True),
        "ServerReady": lambda _: pb.ServerReadyResponse(ready=metadata.is_ready()),
        "ServerMetadata": lambda _: metadata.server(),
        "ModelReady": lambda request: metadata.model_ready(request.name, request.version),
        "ModelMetadata": lambda request: metadata.model(request.name, request.version),
        "ModelConfig": lambda request: metadata.config(request.name, request.version),
        "ModelStatistics": lambda request: metadata.statistics(request.name, request.version),
        "ModelInfer": answers.one,
        "ModelStreamInfer": answers.stream,
        "RepositoryIndex": lambda request: metadata.index(ready=request.ready),
        "RepositoryModelLoad": metadata.load,
        "RepositoryModelUnload": metadata.unload,
    }
    add_service(add_GRPCInferenceServiceServicer_to_server, methods, server, calls)
    if isinstance(server, Http2Server):
        server.add_call(_MODEL_INFER, lambda stream: UnaryCall(stream, inference, calls, host.loop))


class _Answers:
    def __init__(self, inference: Inference) -> None:
        self._inference = inference

    async def one(self, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
        return pb.ModelInferResponse.FromString(await self._inference.infer(read_request(request)))

    async def stream(self, requests: AsyncIterator[pb.ModelInferRequest]) -> AsyncIterator[pb.ModelStreamInferResponse]:
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
            return pb.ModelStreamInferResponse(infer_response=await self.one(request))
        except PolicyBridgeError as error:
            return pb.ModelStreamInferResponse(
                error_message=message_of(error) or type(error).__name__,
                infer_response=pb.ModelInferResponse(id=request_id),
            )


def _cancel(answering: "asyncio.Queue[_Answering | None]") -> None:
    while not answering.empty():
        task = answering.get_nowait()
        if task is not None:
            task.cancel()

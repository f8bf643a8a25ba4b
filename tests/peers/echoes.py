"""Bare echoes: the cost of a transport alone, in a process of its own.

    python -m tests.peers.echoes socket PATH SIZE
    python -m tests.peers.echoes grpc …     further arguments are for the C++ echo, and ignored here

Both answer with as many bytes as an advice has, without reading the request, and print one line, ``ready ADDRESS``. The
socket's messages have SIZE bytes each.
"""

import asyncio
import select
import socket
import sys
from collections.abc import AsyncIterator

import grpc.aio

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceServicer, add_PolicyServiceServicer_to_server
from policybridge.v1.tensor_pb2 import EncodedTensors

ADVICE = bytes(8)


def serve_socket(path: str, size: int) -> None:
    """Answer each ``size`` bytes on a Unix socket with 9 bytes, in an epoll loop."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    epoll = select.epoll()
    epoll.register(listener.fileno(), select.EPOLLIN)
    connections: dict[int, socket.socket] = {}
    held: dict[int, int] = {}
    _ready(f"socket:{path}")
    while True:
        for fd, _ in epoll.poll():
            if fd == listener.fileno():
                connection, _ = listener.accept()
                connections[connection.fileno()] = connection
                epoll.register(connection.fileno(), select.EPOLLIN)
                held[connection.fileno()] = 0
            elif got := len(connections[fd].recv(65536)):
                complete, held[fd] = divmod(held[fd] + got, size)
                if complete:
                    connections[fd].sendall((b"\0" + ADVICE) * complete)
            else:
                epoll.unregister(fd)
                connections.pop(fd).close()


class _Echo(PolicyServiceServicer):
    async def Evaluate(self, request: pb.EvaluateRequest, context: object) -> pb.EvaluateResponse:  # noqa: N802
        return pb.EvaluateResponse(encoded=EncodedTensors(data=ADVICE))

    async def ReportOutcome(  # noqa: N802
        self,
        request: pb.ReportOutcomeRequest,
        context: object,
    ) -> pb.ReportOutcomeResponse:
        return pb.ReportOutcomeResponse()

    async def Session(  # noqa: N802
        self,
        requests: AsyncIterator[pb.SessionRequest],
        context: object,
    ) -> AsyncIterator[pb.SessionResponse]:
        async for request in requests:
            if request.HasField("open"):
                echo = pb.PolicyVersion(name="echo", version=1)
                yield pb.SessionResponse(opened=pb.Opened(session_id="echo", policy=echo))
            else:
                decision = pb.Decision(step=request.observation.step, advice=ADVICE)
                yield pb.SessionResponse(decision=decision)


async def serve_grpc() -> None:
    """Answer 8 bytes to each observation of a session, on a free TCP port."""
    server = grpc.aio.server()
    add_PolicyServiceServicer_to_server(_Echo(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _ready(f"grpc:127.0.0.1:{port}")
    await server.wait_for_termination()


def _ready(address: str) -> None:
    sys.stdout.write(f"ready {address}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "socket":
        serve_socket(sys.argv[2], int(sys.argv[3]))
    else:
        asyncio.run(serve_grpc())

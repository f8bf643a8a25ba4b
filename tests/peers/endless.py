"""A server whose form never ends: it sends empty parts as fast as the client takes them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceServicer, add_PolicyServiceServicer_to_server


class _Endless(PolicyServiceServicer):
    def Evaluate(self, request: pb.EvaluateRequest, context: object) -> pb.EvaluateResponse:  # noqa: N802
        return pb.EvaluateResponse()

    def ReportOutcome(self, request: pb.ReportOutcomeRequest, context: object) -> pb.ReportOutcomeResponse:  # noqa: N802
        return pb.ReportOutcomeResponse()

    def Session(  # noqa: N802
        self, requests: Iterator[pb.SessionRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.SessionResponse]:
        next(requests)
        version = pb.PolicyVersion(name="network", version=1)
        form = pb.FormReference(digest="sha256:" + 64 * "0", bytes=1000)
        yield pb.SessionResponse(opened=pb.Opened(session_id="endless", policy=version, forms={"": form}))
        while context.is_active():
            yield pb.SessionResponse(form=pb.FormPart())


@contextmanager
def endless_form() -> Iterator[str]:
    """Serve it, and give the address."""
    server = grpc.server(ThreadPoolExecutor(4))
    add_PolicyServiceServicer_to_server(_Endless(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc:127.0.0.1:{port}"
    finally:
        server.stop(0).wait()

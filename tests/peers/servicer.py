"""gRPC servers of tests that answer sessions alone."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceServicer, add_PolicyServiceServicer_to_server


class SessionServicer(PolicyServiceServicer):
    """Refuses all calls but sessions, which a subclass answers."""

    def Evaluate(self, request: pb.EvaluateRequest, context: object) -> pb.EvaluateResponse:  # noqa: N802
        raise NotImplementedError

    def ReportOutcome(self, request: pb.ReportOutcomeRequest, context: object) -> pb.ReportOutcomeResponse:  # noqa: N802
        raise NotImplementedError


@contextmanager
def served(servicer: SessionServicer, threads: int = 4) -> Iterator[str]:
    """Serve it on a port of its own, and give the address."""
    server = grpc.server(ThreadPoolExecutor(threads))
    add_PolicyServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc:127.0.0.1:{port}"
    finally:
        server.stop(0).wait()

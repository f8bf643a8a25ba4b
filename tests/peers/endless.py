"""A server whose form never ends: it sends empty parts as fast as the client takes them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager

import grpc

from policybridge.v1 import policy_service_pb2 as pb
from tests.peers.servicer import SessionServicer, served


class _Endless(SessionServicer):
    def Session(  # noqa: N802
        self, requests: Iterator[pb.SessionRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.SessionResponse]:
        next(requests)
        version = pb.PolicyVersion(name="network", version=1)
        form = pb.FormReference(digest="sha256:" + 64 * "0", bytes=1000)
        yield pb.SessionResponse(opened=pb.Opened(session_id="endless", policy=version, forms={"": form}))
        while context.is_active():
            yield pb.SessionResponse(form=pb.FormPart())


def endless_form() -> AbstractContextManager[str]:
    """Serve it, and give the address."""
    return served(_Endless())

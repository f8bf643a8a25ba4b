"""Spans, as they arrive at a receiver of OpenTelemetry's protocol."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_client import open_runner
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import PolicyReference, Signature
from policybridge_serdes.messages import reference_to_pb
from policybridge_serdes.protobuf import signature_to_pb
from tests.repositories import answering, write_python
from tests.server.telemetry.test_metrics import ADVICE, X
from tests.serving import started

BUILD = "0af7651916cd43dd8448eb211c80319c"
CONTEXT = f"00-{BUILD}-b7ad6b7169203331-01"
UNWANTED = f"00-{BUILD}-b7ad6b7169203331-00"


@dataclass
class Receiver:
    """Takes OTLP over HTTP; the spans are complete when the server that sends them has ended."""

    address: str
    spans: list[Span] = field(default_factory=list)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    receiver.spans += scope.spans
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()


@contextmanager
def tracing(*arguments: object) -> Iterator[tuple[Receiver, str, str]]:
    """Give the receiver, and the server's addresses over gRPC and the socket; at the end all spans have arrived."""
    with receiving() as receiver, TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        write_python(folder / "policies", "some", answering("10 // observation['x'].item()"))
        listen = ("--grpc", "127.0.0.1:0", "--socket", folder / "server.sock", "--traces", receiver.address)
        with started("--repository", folder / "policies", "--allow-python", *listen, *arguments) as (_, (grpc, socket)):
            yield receiver, grpc, socket


def values(span: Span) -> dict[str, object]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "") for each in span.attributes}


def test_each_session_of_a_build_is_a_span_below_it_and_some_of_its_decisions_are_spans_below_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tracing("--trace-sessions", 0, "--trace-decisions", 0.5) as (receiver, address, socket):
        monkeypatch.setenv("TRACEPARENT", CONTEXT)
        for each in (address, socket):
            with open_runner(each, policy="some", features=[X], advice=ADVICE) as runner:
                for number in range(1, 5):
                    runner["x"] = number
                    runner.evaluate()
        monkeypatch.setenv("TRACEPARENT", UNWANTED)
        with open_runner(socket, policy="some", features=[X], advice=ADVICE) as runner:
            runner["x"] = 1
            runner.evaluate()
        monkeypatch.delenv("TRACEPARENT")
        with open_runner(socket, policy="some", features=[X], advice=ADVICE) as runner:
            runner["x"] = 1
            runner.evaluate()
    sessions, decisions = receiver.named("session"), receiver.named("decision")
    assert [session.trace_id.hex() for session in sessions] == [BUILD] * 2
    assert {session.parent_span_id.hex() for session in sessions} == {"b7ad6b7169203331"}
    assert {(values(each)["policybridge.policy"], values(each)["policybridge.decisions"]) for each in sessions} == {
        ("some", 4)
    }
    assert [values(each)["policybridge.step"] for each in decisions] == [1, 3] * 2
    assert {each.parent_span_id for each in decisions} == {each.span_id for each in sessions}
    assert all(each.end_time_unix_nano > each.start_time_unix_nano for each in decisions)


def test_the_context_of_a_call_s_metadata_is_taken_and_a_failure_is_told_in_the_span() -> None:
    with tracing() as (receiver, address, socket):
        with grpc.insecure_channel(address.removeprefix("grpc:")) as channel:
            opening = pb.Open(
                policy=reference_to_pb(PolicyReference("some")),
                signature=signature_to_pb(Signature.of([X], ADVICE)),
                serdes="protobuf",
            )
            first = pb.SessionRequest(open=opening)
            list(PolicyServiceStub(channel).Session(iter([first]), metadata=(("traceparent", CONTEXT),)))
        with open_runner(socket, policy="some", features=[X], advice=ADVICE, labels={"file": "a.c"}) as runner:
            runner["x"] = 0
            with pytest.raises(PolicyBridgeError):
                runner.evaluate()
    of_build, other = sorted(receiver.named("session"), key=lambda span: span.trace_id.hex() != BUILD)
    assert (of_build.trace_id.hex(), of_build.parent_span_id.hex()) == (BUILD, "b7ad6b7169203331")
    assert values(other)["policybridge.label.file"] == "a.c"
    assert values(other)["policybridge.status"] == "INTERNAL"
    assert other.status.code == other.status.STATUS_CODE_ERROR

"""Clients that never stop asking, and tell all that was acknowledged; for each line, until the server named is gone."""

import hashlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import grpc
import msgspec
import numpy as np

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_bench.network import SIGNATURE, observations
from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Outcome, PolicyReference, SessionOptions, Values, load_serdes
from policybridge_serdes.messages import reference_to_pb
from policybridge_serdes.protobuf import signature_to_pb
from tests.kills.messages import Acknowledged, Asked, Asking, Over, say

POLICY: Final = PolicyReference("network")
SEEDS: Final = 8
STEPS: Final = 100
"""Decisions between two outcomes of a session."""

_REPORTS: Final = 3
_STEADY: Final = 0.05
"""Seconds between the outcomes of the client that only reports; less than the ledger's period."""

_QUIET: Final = 0.01


def observed(seed: int) -> list[Values]:
    """Give the observations of a session."""
    dtype = SIGNATURE.features.dtype
    return [np.ndarray(1, dtype, row.tobytes()) for row in observations(_REPORTS * STEPS, seed)]


def digested(advices: bytes) -> str:
    """Give what stands for the bytes of advices in a message."""
    return hashlib.sha256(advices).hexdigest()


def whole_session(stub: PolicyServiceStub, policy: PolicyReference, rows: Sequence[Values]) -> tuple[str, bytes]:
    """Ask for all ``rows`` in one gRPC session that ends with OK; give its id and the advices' bytes.

    Raises:
        grpc.RpcError: it did not end with OK.

    """
    serdes = load_serdes("bitstream")
    encode, decode = serdes.codec(SIGNATURE.features).encode, serdes.codec(SIGNATURE.advice_layout).decode
    opening = pb.Open(policy=reference_to_pb(policy), signature=signature_to_pb(SIGNATURE), serdes="bitstream")
    asked = [pb.Observation(step=step, values=encode(row)) for step, row in enumerate(rows, 1)]
    requests = [pb.SessionRequest(open=opening), *(pb.SessionRequest(observation=each) for each in asked)]
    # The list is complete only when the call has ended with OK.
    opened, *decided = list(stub.Session(iter(requests)))
    return opened.opened.session_id, b"".join(decode(each.decision.advice).tobytes() for each in decided)


def _open(address: str) -> ClientSession:
    return connect(address).open(POLICY, SIGNATURE, SessionOptions())


def _report(address: str, thread: str) -> None:
    """Ask, report, ask, report: session after session."""
    for number in itertools.count():
        seed, advices, session = number % SEEDS, b"", _open(address)
        rows = observed(seed)
        for report in range(1, 1 + number % (_REPORTS + 1)):
            advices += b"".join(session.evaluate(row).tobytes() for row in rows[(report - 1) * STEPS : report * STEPS])
            session.report(Outcome({"report": report}, "ok"))
            say(Acknowledged(session.id, thread, seed, report * STEPS, digested(advices), report))
        session.close()


def _end(address: str, thread: str) -> None:
    """Run session after session to its end over gRPC."""
    with grpc.insecure_channel(address.removeprefix("grpc:"), options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = PolicyServiceStub(channel)
        for number in itertools.count():
            seed, count = number % SEEDS, 1 + number % STEPS
            session, advices = whole_session(stub, POLICY, observed(seed)[:count])
            say(Acknowledged(session, thread, seed, count, digested(advices), 0, ended=True))


def _steady(address: str, thread: str) -> None:
    """Report outcomes of one session, closer to each other than the ledger's period."""
    session = _open(address)
    for report in itertools.count(1):
        session.report(Outcome({"report": report}, "ok"))
        say(Acknowledged(session.id, thread, 0, 0, digested(b""), report))
        time.sleep(_STEADY)


def _quiet(address: str, thread: str) -> None:  # noqa: ARG001
    """Ask slowly, and never report."""
    session = _open(address)
    for count, row in enumerate(itertools.cycle(observed(0)), 1):
        session.evaluate(row)
        say(Asked(session.id, count, time.monotonic()))
        time.sleep(_QUIET)


def _until_gone(ask: Callable[[str, str], None], address: str, thread: str) -> None:
    # The server is killed at some moment.
    with suppress(PolicyBridgeError, grpc.RpcError, OSError):
        ask(address, thread)


def main() -> None:
    """Ask as the lines on standard input say."""
    for line in sys.stdin:
        given = msgspec.json.decode(line, type=Asking)
        asking = [(_report, given.socket), (_report, given.grpc), (_end, given.grpc), (_end, given.grpc)]
        asking += [(_steady, given.socket), (_quiet, given.grpc)]
        threads = [
            threading.Thread(target=_until_gone, args=(ask, address, f"{os.getpid()}-{number}"))
            for number, (ask, address) in enumerate(asking)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        say(Over())


if __name__ == "__main__":
    main()

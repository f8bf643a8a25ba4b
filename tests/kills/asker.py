"""Clients that ask from a line with `Asking` to a line with `Rest`, and tell all that was acknowledged."""

import hashlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
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
from tests.kills.messages import Acknowledged, Asked, Asking, Over, Rest, say

POLICY: Final = PolicyReference("network")
SEEDS: Final = 8
STEPS: Final = 50
"""Decisions between two outcomes of a session."""

_REPORTS: Final = 3
_STEADY: Final = 0.05
"""Seconds between the outcomes of the client that only reports; less than the ledger's period."""

_QUIET: Final = 0.01
_COMPILES: Final = 0.02
"""Seconds between two requests of the other clients: servers that start need the cores, too."""
_AGAIN: Final = 0.02
"""Seconds after a failure: the server is being started again."""


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


class _Clients:
    """Threads that ask the servers of one message.

    Args:
        asked: the message.

    """

    def __init__(self, asked: Asking) -> None:
        self._rest = threading.Event()
        asking = [(self._report, asked.socket), (self._report, asked.grpc), (self._end, asked.grpc)]
        asking += [(self._end, asked.grpc), (self._steady, asked.socket), (self._quiet, asked.grpc)]
        self._threads = [
            threading.Thread(target=self._until_rest, args=(ask, address, f"{os.getpid()}-{number}"))
            for number, (ask, address) in enumerate(asking)
        ]
        for thread in self._threads:
            thread.start()

    def rest(self) -> None:
        """End all sessions."""
        self._rest.set()
        for thread in self._threads:
            thread.join()

    def _until_rest(self, ask: Callable[[str, str], None], address: str, thread: str) -> None:
        while not self._rest.is_set():
            # The server is killed at some moment.
            with suppress(PolicyBridgeError, grpc.RpcError, OSError):
                ask(address, thread)
            self._rest.wait(_AGAIN)

    def _numbers(self, first: int = 0) -> Iterator[int]:
        return itertools.takewhile(lambda _: not self._rest.is_set(), itertools.count(first))

    def _report(self, address: str, thread: str) -> None:
        """Ask, report, ask, report: session after session."""
        for number in self._numbers():
            seed, advices = number % SEEDS, b""
            rows = observed(seed)
            with closing(_open(address)) as session:
                for report in range(1, 1 + number % (_REPORTS + 1)):
                    part = rows[(report - 1) * STEPS : report * STEPS]
                    advices += b"".join(session.evaluate(row).tobytes() for row in part)
                    session.report(Outcome({"report": report}, "ok"))
                    say(Acknowledged(session.id, thread, seed, report * STEPS, digested(advices), report))
                    time.sleep(_COMPILES)

    def _end(self, address: str, thread: str) -> None:
        """Run session after session to its end over gRPC."""
        target = address.removeprefix("grpc:")
        with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
            stub = PolicyServiceStub(channel)
            for number in self._numbers():
                seed, count = number % SEEDS, 1 + number % STEPS
                session, advices = whole_session(stub, POLICY, observed(seed)[:count])
                say(Acknowledged(session, thread, seed, count, digested(advices), 0, ended=True))
                time.sleep(_COMPILES)

    def _steady(self, address: str, thread: str) -> None:
        """Report outcomes of one session, closer to each other than the ledger's period."""
        with closing(_open(address)) as session:
            for report in self._numbers(1):
                session.report(Outcome({"report": report}, "ok"))
                say(Acknowledged(session.id, thread, 0, 0, digested(b""), report))
                time.sleep(_STEADY)

    def _quiet(self, address: str, thread: str) -> None:
        """Ask slowly, and never report."""
        rows = itertools.cycle(observed(0))
        with closing(_open(address)) as session:
            for count in self._numbers(1):
                session.evaluate(next(rows))
                say(Asked(session.id, count, time.monotonic()))
                time.sleep(_QUIET)


def main() -> None:
    """Ask as the lines on standard input say."""
    asking: list[_Clients] = []
    for line in sys.stdin:
        match msgspec.json.decode(line, type=Asking | Rest):
            case Asking() as asked:
                asking.append(_Clients(asked))
            case Rest():
                while asking:
                    asking.pop().rest()
                say(Over())


if __name__ == "__main__":
    main()

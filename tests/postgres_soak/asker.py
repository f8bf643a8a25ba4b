"""Sessions that ask at an even pace, and print acknowledgements and the time of each decision."""

import itertools
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from policybridge_bench.payloads import SIGNATURE, observations
from policybridge_client.connection import connect
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Outcome, PolicyReference, SessionOptions, Values
from tests.kills.asker import digested
from tests.kills.messages import Acknowledged

STEPS: Final = 50
"""Decisions between two outcomes of a session."""

_REPORTS: Final = 4
_SEEDS: Final = 8
_PAUSE: Final = 0.02
"""Seconds after each ten decisions: compilers compile between their questions."""


class Said(msgspec.Struct, frozen=True):
    """A thread's message: an acknowledgement or a refusal, and moments and nanoseconds of the decisions before it."""

    at: list[float]
    nanoseconds: list[int]
    acknowledged: Acknowledged | None = None
    refused: str = ""


def observed(seed: int) -> list[Values]:
    """Give the observations of a session."""
    dtype = SIGNATURE.features.dtype
    return [np.ndarray(1, dtype, row.tobytes()) for row in observations(_REPORTS * STEPS, seed)]


class _Asker:
    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._at: list[float] = []
        self._nanoseconds: list[int] = []

    def run(self, address: str, seed: int) -> None:
        for number in itertools.count(seed):
            try:
                for acknowledged in self._session(address, number % _SEEDS):
                    self._say(acknowledged)
            except PolicyBridgeError as error:
                self._say(None, str(error))
                time.sleep(0.1)

    def _session(self, address: str, seed: int) -> Iterator[Acknowledged]:
        session, advices, rows = (
            connect(address).open(PolicyReference("network"), SIGNATURE, SessionOptions()),
            b"",
            observed(seed),
        )
        for step, row in enumerate(rows, 1):
            begun = time.perf_counter_ns()
            advices += session.evaluate(row).tobytes()
            self._nanoseconds.append(time.perf_counter_ns() - begun)
            self._at.append(time.time())
            if step % 10 == 0:
                time.sleep(_PAUSE)
            if step % STEPS == 0:
                report = step // STEPS
                session.report(Outcome({"report": report}, "ok"))
                yield Acknowledged(session.id, address, seed, step, digested(advices), report)
        session.close()
        # The end of a session is acknowledged over gRPC alone.
        yield Acknowledged(
            session.id, address, seed, len(rows), digested(advices), report, ended=address.startswith("grpc")
        )

    def _say(self, acknowledged: Acknowledged | None, refused: str = "") -> None:
        said = Said(self._at, self._nanoseconds, acknowledged, refused)
        self._at, self._nanoseconds = [], []
        with self._lock:
            sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
            sys.stdout.buffer.flush()


def main() -> None:
    """Ask every address of the command line in a thread of its own, until the process is killed."""
    lock = threading.Lock()
    for seed, address in enumerate(sys.argv[1:]):
        threading.Thread(target=_Asker(lock).run, args=(address, seed)).start()


if __name__ == "__main__":
    main()

"""A client of the soak, in a process of its own: it opens session after session until its standard input ends.

Usage: ``python -m tests.soak.client SEED ADDRESS…``. Standard output has one line for each session that
ended, a JSON object: ``acknowledged``, with what the server acknowledged, or ``error``, or ``wrong``, an advice that is
not the observation and the mark of one artifact.
"""

import faulthandler
import random
import sys
import threading
from dataclasses import asdict, dataclass

import msgspec

from policybridge_client import ElementType, ModelRunner, TensorSpec, open_runner
from policybridge_core.errors import PolicyBridgeError

POLICY = "soak"
SOURCE = """class Policy:
    def evaluate(self, observation, session):
        return observation["x"] + {} * 1_000_000
"""
"""A version adds its mark to each observation, so that every advice says which artifact made it."""
_TIMEOUT = 15.0
_LONGEST = 200
_PAUSE = 0.05
ENDS = 60.0
"""Seconds within which a client ends after its standard input."""
_TOLD = 10.0


@dataclass
class Acknowledged:
    """A session whose outcome the server acknowledged; all its advice had the same mark."""

    session: str
    version: int
    decisions: int
    mark: float


def main() -> None:
    """Ask until the standard input ends."""
    over = threading.Event()
    threading.Thread(target=_wait_for_end, args=(over,), daemon=True).start()
    seed, *addresses = sys.argv[1:]
    choices = random.Random(seed)
    while not over.is_set():
        print(msgspec.json.encode(_session(choices, addresses)).decode(), flush=True)


def _wait_for_end(over: threading.Event) -> None:
    sys.stdin.read()
    # Should it hang, its last words say where.
    faulthandler.dump_traceback_later(ENDS - _TOLD)
    over.set()


def _session(choices: random.Random, addresses: list[str]) -> dict[str, object]:
    x, advice = TensorSpec("x", ElementType.INT64, (1,)), TensorSpec("advice", ElementType.INT64, (1,))
    address, count = choices.choice(addresses), choices.randint(1, _LONGEST)
    try:
        with open_runner(address, policy=POLICY, features=[x], advice=advice, timeout=_TIMEOUT) as runner:
            marks = {_mark(runner, number) for number in range(count)}
            if len(marks) != 1:
                return {"wrong": f"the session {runner.session_id} was given advice of the marks {marks}"}
            runner.report("ok", decisions=count)
            said = Acknowledged(runner.session_id, runner.policy.version, count, marks.pop())
            return {"acknowledged": asdict(said)}
    except PolicyBridgeError as error:
        threading.Event().wait(_PAUSE)
        return {"error": type(error).__name__}


def _mark(runner: ModelRunner, number: int) -> float:
    runner["x"] = [number]
    return (int(runner.evaluate()) - number) / 1_000_000


if __name__ == "__main__":
    main()

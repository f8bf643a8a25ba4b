"""A task without a compiler: two functions for each case, and in each of them calls to be made or not."""

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from policybridge_client import open_runner
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import ElementType, TensorSpec, Values
from policybridge_train.compiling.result import CompileResult
from policybridge_train.tasks.task import Asking, Case

_SENT = ("gain", "noise", "own", "caller", "callee")
_CALLS = 10


def _hash(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big", signed=True)


class Toy:
    """A yes costs ``-gain``, which may be thousands. So the best is a yes where gain > 0.

    Args:
        failing: the name of a case that never compiles.
        own: ``no``: the default is always no; ``chance``: it is drawn.

    """

    name = "toy"
    features = tuple(TensorSpec(name, ElementType.INT64) for name in ("gain", "noise", "own"))
    advice = TensorSpec("advice", ElementType.INT64)
    default = "own"

    def __init__(self, failing: str = "", own: str = "no") -> None:
        self._failing = failing
        self._draws = own == "chance"

    def cases(self, corpus: Path | None) -> Sequence[Case]:
        """Give 40 cases of 10 projects; see `Task`."""
        del corpus
        return [Case(f"project {n % 10}/{n}", f"project {n % 10}") for n in range(40)]

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Decide about all calls of a case."""
        assert asking is not None, "there is a default"
        if case.name == self._failing:
            return CompileResult.failed("it never compiles")
        chance = np.random.default_rng(abs(_hash(case.name)))
        costs: dict[str, float] = {}
        specs = [TensorSpec(name, ElementType.INT64) for name in _SENT]
        exploration = None if asking.exploration is None else asking.exploration.of_module(case.name)
        try:
            with open_runner(
                asking.server, policy=asking.policy, features=specs, advice=self.advice, labels=asking.labels,
                exploration=exploration, timeout=60,
            ) as runner:  # fmt: skip
                for call in range(_CALLS):
                    function, callee = f"{case.name}/{call % 2}", f"{case.name}/callee{call}"
                    gain = int(chance.choice([-3000, -40, -5, 5, 40, 3000]))
                    noise, own = int(chance.integers(-9, 9)), int(self._draws and chance.integers(2))
                    values = (gain, noise, own, _hash(function), _hash(callee))
                    for name, value in zip(_SENT, values, strict=True):
                        runner[name] = value
                    yes = bool(runner.evaluate())
                    unit = f"{_hash(function) & (1 << 64) - 1:016x}"
                    costs[unit] = costs.get(unit, 20_000.0) - min(max(gain, -300), 300) * yes
                runner.report("ok")
                return CompileResult(costs, [runner.session_id], {"text": sum(costs.values())})
        except PolicyBridgeError as error:
            return CompileResult.failed(f"{os.getpid()}: {error}")

    def end(self) -> None:
        """There is nothing to end."""

    def units(self, observations: Values, contexts: npt.NDArray[np.object_]) -> Sequence[str]:
        """Give the function of each call."""
        del contexts
        return [f"{caller:016x}" for caller in observations["caller"].reshape(-1).view(np.uint64).tolist()]

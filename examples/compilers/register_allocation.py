"""A stand-in for a compiler whose register allocator asks a policy for each step, and sends only changes.

    python examples/compilers/register_allocation.py socket:policybridge.sock

Live ranges are intervals of instructions; live ranges that overlap interfere, and may not share a register. Splitting a
live range at a use makes two of it. An episode is one function: it starts with the whole interference graph and the
flag ``new``.
"""

import sys
from dataclasses import dataclass

import numpy as np

from policybridge_client import ElementType, ModelRunner, TensorSpec, open_runner

REGISTERS = 8
STACK = REGISTERS
"""A live range with this colour lives in memory, where it interferes with no other."""

COLOUR, SPLIT = 0, 1

FEATURES = [
    TensorSpec("new", ElementType.BOOL),
    TensorSpec("removed", ElementType.INT64, (-1,)),
    TensorSpec("changed", ElementType.INT64, (-1,)),
    TensorSpec("features", ElementType.FLOAT, (-1, 6)),
    TensorSpec("points", ElementType.INT64, (-1,)),
    TensorSpec("edges", ElementType.INT64, (-1, 2)),
]
ADVICE = TensorSpec("decision", ElementType.INT32, (3,))


@dataclass(frozen=True)
class LiveRange:
    """The instructions from a value's definition to its last use.

    Attributes:
        start: where it is defined.
        uses: where it is used, in order; it may be split at each use but the last.
        weight: how often it is used when the function runs.

    """

    start: int
    uses: tuple[int, ...]
    weight: float

    @property
    def end(self) -> int:
        """The last use."""
        return self.uses[-1]

    @property
    def points(self) -> int:
        """At how many uses it may be split."""
        return len(self.uses) - 1

    def features(self) -> tuple[float, ...]:
        """Give its features for the policy, float [6]."""
        length = self.end - self.start
        return (self.start / 100, self.end / 100, length / 100, len(self.uses), self.weight, self.weight / (length + 1))

    def split(self, point: int) -> tuple["LiveRange", "LiveRange"]:
        """Make two live ranges of it; the first one ends at the use ``point``."""
        before, after = self.uses[: point + 1], self.uses[point + 1 :]
        return LiveRange(self.start, before, self.weight), LiveRange(before[-1], after, self.weight)

    def interferes(self, other: "LiveRange") -> bool:
        """Whether both live at the same time."""
        return self.start < other.end and other.start < self.end


class Function:
    """A function whose registers are being allocated.

    Attributes:
        ranges: the live ranges by their numbers; a number is never used again.
        registers: of the live ranges that are coloured.
        sent: live ranges that were described to the policy, over all observations.

    """

    def __init__(self, name: str, ranges: list[LiveRange]) -> None:
        self.name = name
        self.ranges = dict(enumerate(ranges))
        self.registers: dict[int, int] = {}
        self.sent = 0
        self._next = len(ranges)
        self._removed: list[int] = []
        self._changed = list(self.ranges)

    def observe(self, runner: ModelRunner) -> None:
        """Set the features to the changes since the last call; mostly there are none."""
        changed = [self.ranges[number] for number in self._changed]
        runner["removed"] = np.array(self._removed, np.int64)
        runner["changed"] = np.array(self._changed, np.int64)
        runner["features"] = np.array([each.features() for each in changed], np.float32).reshape(-1, 6)
        runner["points"] = np.array([each.points for each in changed], np.int64)
        runner["edges"] = np.array(self._new_edges(), np.int64).reshape(-1, 2)
        self.sent += len(changed)
        self._removed, self._changed = [], []

    def _new_edges(self) -> list[tuple[int, int]]:
        new = set(self._changed)
        return [
            (one, other)
            for one in self._changed
            for other in self.ranges
            if other != one and (other not in new or one < other) and self.ranges[one].interferes(self.ranges[other])
        ]

    def colour(self, number: int, register: int) -> None:
        """Give the live range a register, or the stack."""
        if not 0 <= register <= STACK or register in self.taken(number):
            raise ValueError(f"{self.name}: live range {number} cannot have register {register}")
        self.registers[number] = register

    def taken(self, number: int) -> set[int]:
        """Give the registers that the live range may not have."""
        mine = self.ranges[number]
        held = {
            self.registers[other] for other in self.registers if other != number and mine.interferes(self.ranges[other])
        }
        return held - {STACK}

    def split(self, number: int, point: int) -> None:
        """Make two live ranges of one."""
        if not 0 <= point < self.ranges[number].points:
            raise ValueError(f"{self.name}: live range {number} cannot be split at its use {point}")
        for part in self.ranges.pop(number).split(point):
            self.ranges[self._next] = part
            self._changed.append(self._next)
            self._next += 1
        self._removed.append(number)


def make_function(name: str, size: int, seed: int) -> Function:
    """Make a function of ``size`` live ranges within 100 instructions."""
    generator = np.random.default_rng(seed)
    ranges = []
    for _ in range(size):
        start = int(generator.integers(0, 90))
        uses = generator.integers(start + 1, start + 11 + generator.integers(0, 40), int(generator.integers(1, 5)))
        ranges.append(LiveRange(start, tuple(sorted(set(uses.tolist()))), float(generator.exponential())))
    return Function(name, ranges)


def open_session(address: str, timeout: float = 60.0) -> ModelRunner:
    """Open a session; it serves any number of functions, one after the other."""
    return open_runner(address, policy="register-allocation", features=FEATURES, advice=ADVICE, timeout=timeout)


def allocate(runner: ModelRunner, function: Function) -> dict[int, int]:
    """Allocate the registers of ``function``; give the register of each live range."""
    runner.context(function.name)
    runner["new"] = True
    while len(function.registers) < len(function.ranges):
        function.observe(runner)
        number, task, choice = np.asarray(runner.evaluate()).tolist()
        if number not in function.ranges or number in function.registers:
            raise ValueError(f"{function.name}: there is no live range {number} to be decided")
        if task == SPLIT:
            function.split(number, choice)
        else:
            function.colour(number, choice)
        runner["new"] = False
    return function.registers


def main() -> None:
    """Allocate the registers of three functions in one session with the server that the command line names."""
    with open_session(sys.argv[1]) as runner:
        for seed, size in enumerate([12, 1, 30]):
            function = make_function(f"function {seed}", size, seed)
            registers = list(allocate(runner, function).values())
            spilled = registers.count(STACK)
            print(f"{function.name}: {len(registers)} live ranges of {size}, {spilled} on the stack")


if __name__ == "__main__":
    main()

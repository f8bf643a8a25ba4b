"""Numba asks a policy, while it compiles, about each call that it can inline.

    python examples/compilers/numba_inlining.py inprocess:policies

``njit(inline=…)`` takes a cost model: Numba calls it with the call, the caller's intermediate representation and the
callee's (https://numba.readthedocs.io/en/stable/developer/inlining.html). `Inliner` is one that asks.
"""

import sys
from contextlib import AbstractContextManager
from typing import Any

from numba import njit
from numba.core import ir
from numba.core.analysis import compute_cfg_from_blocks

from policybridge_client import ElementType, ModelRunner, TensorSpec, open_runner
from policybridge_core.errors import PolicyBridgeError

SIDES = ("callee", "caller")
NAMES = ["arguments", "loop_depth"] + [
    f"{side}_{what}" for side in SIDES for what in ("blocks", "statements", "calls", "loops")
]
FEATURES = [TensorSpec(name, ElementType.INT64) for name in NAMES]
ADVICE = TensorSpec("inline", ElementType.BOOL)


class Inliner(AbstractContextManager["Inliner"]):
    """A cost model for ``njit(inline=…)``, for any number of functions. Without advice nothing is inlined.

    Numba compiles under a lock of the process, so that one session is enough for all threads.

    Args:
        address: of the server; ``inprocess:REPOSITORY`` needs none.
        policy: a reference; see `open_runner`.
        timeout: limit of each wait for the server, in seconds.

    Attributes:
        decisions: caller, callee, and whether the call was inlined, in the order in which Numba asked.

    """

    def __init__(self, address: str, policy: str = "numba-inlining", timeout: float = 10.0) -> None:
        self.decisions: list[tuple[str, str, bool]] = []
        self._runner: ModelRunner | None = None
        try:
            self._runner = open_runner(address, policy=policy, features=FEATURES, advice=ADVICE, timeout=timeout)
        except PolicyBridgeError as error:
            self._do_without(error)

    def __call__(self, call: ir.Expr, caller: ir.FunctionIR, callee: ir.FunctionIR) -> bool:
        """Decide about one call."""
        advice = False
        if self._runner is not None:
            try:
                advice = self._ask(self._runner, call, caller, callee)
            except PolicyBridgeError as error:
                self._do_without(error)
        self.decisions.append((caller.func_id.func_name, callee.func_id.func_name, advice))
        return advice

    def _ask(self, runner: ModelRunner, call: ir.Expr, caller: ir.FunctionIR, callee: ir.FunctionIR) -> bool:
        runner.context(caller.func_id.func_qualname)
        values = {"arguments": len(call.args) + len(call.kws), "loop_depth": loop_depth(call, caller)}
        for side, function in zip(SIDES, (callee, caller), strict=True):
            values |= {f"{side}_{what}": count for what, count in measure(function).items()}
        for name, value in values.items():
            runner[name][...] = value
        return bool(runner.evaluate())

    def _do_without(self, error: PolicyBridgeError) -> None:
        print(f"no advice, nothing more is inlined: {error}", file=sys.stderr)
        self.close()

    def close(self) -> None:
        """End the session."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def loop_depth(call: ir.Expr, caller: ir.FunctionIR) -> int:
    """Give the number of the caller's loops around the call."""
    (label,) = (
        label for label, block in caller.blocks.items() for each in block.find_insts(ir.Assign) if each.value is call
    )
    return len(compute_cfg_from_blocks(caller.blocks).in_loops(label))


def measure(function: ir.FunctionIR) -> dict[str, int]:
    """Count the parts of a function, including code inlined into it before."""
    blocks = function.blocks
    return {
        "blocks": len(blocks),
        "statements": sum(len(block.body) for block in blocks.values()),
        "calls": sum(1 for block in blocks.values() for _ in block.find_exprs("call")),
        "loops": len(compute_cfg_from_blocks(blocks).loops()),
    }


def make_program(inliner: Inliner) -> Any:
    """Give a program whose calls the policy may inline: it sums how soon each point leaves the Mandelbrot set."""

    def norm(x: float, y: float) -> float:
        return x * x + y * y

    def escape(x: float, y: float) -> int:
        a, b = 0.0, 0.0
        for step in range(100):
            if size(a, b) > 4.0:
                return step
            a, b = a * a - b * b + x, 2.0 * a * b + y
        return 100

    def total(points: int) -> int:
        steps = 0
        for row in range(points):
            for column in range(points):
                steps += soon(3.0 * column / points - 2.0, 2.0 * row / points - 1.0)
        return steps

    size = njit(inline=inliner)(norm)
    soon = njit(inline=inliner)(escape)
    return njit(total)


def main() -> None:
    """Compile and run the program with the policy that decides at the address of the command line."""
    with Inliner(sys.argv[1]) as inliner:
        print("steps:", make_program(inliner)(100))
    for caller, callee, inlined in inliner.decisions:
        print(f"{caller}: {callee} is {'inlined' if inlined else 'called'}")


if __name__ == "__main__":
    main()

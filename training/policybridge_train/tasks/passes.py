"""Passes of each function for size: a policy chooses one alternative for a function, whose bytes are its cost.

The plugin ``policybridge-inliner`` asks once for each function, where inlining has ended (docs/passes.md). LLVM decides
about inlining.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_client.decisions import PassChoice
from policybridge_client.decisions.passes import ALL_FUNCTIONS, ALTERNATIVES, checked_action
from policybridge_client.llvm.tasks import INLINE
from policybridge_serdes import ElementType, TensorSpec, Values
from policybridge_train.compiling.compilation import ByDecisions
from policybridge_train.compiling.job import Wanted
from policybridge_train.compiling.result import CompileResult
from policybridge_train.tasks.inline import by_unit
from policybridge_train.tasks.modules import OfPlugin
from policybridge_train.tasks.task import Asking, Case, names_in_hex

_BLOCK_COUNTS: Final = (
    "instructions", "loads", "stores", "calls", "indirect_calls", "intrinsics", "phis", "geps", "variable_geps",
    "byte_constants", "word_constants", "wide_constants", "globals",
)  # fmt: skip

COUNTS: Final = (
    "minsize", "optsize", "local", "arguments", "uses", "blocks", "branches", "switches", "switch_cases", "returns",
    "landing_pads", "critical_edges", "largest_block", "allocas", "selects", "compares", "casts", "integer_operations",
    "multiplications", "float_operations", "vector_operations", "distinct_constants", "distinct_globals", "loops",
    "top_level_loops", "loop_depth", "loop_blocks", "single_block_loops", "loop_exits", *_BLOCK_COUNTS,
    *(f"loop_{name}" for name in _BLOCK_COUNTS),
)  # fmt: skip
"""The plugin's features of a function, but for its key (docs/passes.md), in the plugin's order."""


class PassesForSize(OfPlugin):
    """Passes of the functions of a corpus' modules, at the level that each module was recorded with.

    Args:
        compiler: the name or path of a clang; by default the newest that is found.
        plugins: the folder of the plugin; by default where it is installed, or POLICYBRIDGE_PLUGINS says.
        seconds: the limit of one compile.
        memory: the limit of one compile, in MiB.

    Raises:
        NotFoundError: there is no such compiler, or no plugin that it loads.
        InvalidError: a limit is no number.

    """

    name = "passes"
    wanted = Wanted(("text", "exec"), units=by_unit)
    features = tuple(TensorSpec(name, ElementType.INT64) for name in COUNTS)
    advice = TensorSpec("pass_choice", ElementType.INT64)
    choices = len(ALTERNATIVES)
    default = ""

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Compile; see `Task`."""
        return super().run(case, asking) if asking is None else self._compiled(case, asking.decider(INLINE.name))

    def run_with(self, case: Case, choice: int) -> CompileResult:
        """Compile a module with one alternative for all functions."""
        words = (made.split(" ", 1) for made in tuple(ALTERNATIVES.values())[choice])
        chosen = ((checked_action(action), name) for action, name in words)
        passes = tuple(PassChoice(ALL_FUNCTIONS, action, name) for action, name in chosen if action is not None)
        return self._compiled(case, ByDecisions({}, passes))

    def units(self, observations: Values, contexts: npt.NDArray[np.object_]) -> Sequence[str]:  # noqa: ARG002 - of `Task`
        """Give the function of each decision; see `Task`."""
        return names_in_hex(observations, "function")

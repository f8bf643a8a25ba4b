"""Inlining for size: a policy decides about each call, and a function's bytes are its cost.

The plugin ``policybridge-inliner`` asks (docs/plugin.md): it tells the caller of each call, without which no decision
could be credited with its function's cost.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_client.llvm.inliner import INLINING_DEFAULT
from policybridge_client.llvm.tasks import INLINE
from policybridge_serdes import ElementType, TensorSpec, Values
from policybridge_train.compiling.job import Wanted
from policybridge_train.tasks.modules import OfPlugin
from policybridge_train.tasks.task import names_in_hex

NUMBERS: Final = (
    "sroa_savings", "sroa_losses", "load_elimination", "call_penalty", "call_argument_setup",
    "load_relative_intrinsic", "lowered_call_arg_setup", "indirect_call_penalty", "jump_table_penalty",
    "case_cluster_penalty", "switch_default_dest_penalty", "switch_penalty", "unsimplified_common_instructions",
    "num_loops", "dead_blocks", "simplified_instructions", "constant_args", "constant_offset_ptr_args",
    "callsite_cost", "cold_cc_penalty", "last_call_to_static_bonus", "is_multiple_blocks", "nested_inlines",
    "nested_inline_cost_estimate", "threshold", "callee_basic_block_count", "callsite_height", "node_count",
    "nr_ctant_params", "cost_estimate", "edge_count", "caller_users", "caller_conditionally_executed_blocks",
    "caller_basic_block_count", "callee_conditionally_executed_blocks", "callee_users", "is_callee_avail_external",
    "is_caller_avail_external",
)  # fmt: skip
"""LLVM's features of a call (llvm/include/llvm/Analysis/InlineModelFeatureMaps.h), in its order."""

TOLD: Final = (
    "callee_local", "callee_discardable", "caller_discardable", "callee_instructions", "caller_instructions",
)  # fmt: skip
"""The plugin's further features (docs/plugin.md)."""


def unit_of(function: str) -> str:
    """Give a function's unit: in hex, the hash that the plugin sends for its name (docs/plugin.md)."""
    return hashlib.sha256(function.encode(errors="surrogateescape")).hexdigest()[:16]


def by_unit(costs: Mapping[str, float]) -> Mapping[str, float]:
    """Give costs by unit from costs by function."""
    return {unit_of(name): cost for name, cost in costs.items()}


class InlineForSize(OfPlugin):
    """Inlining of a corpus' modules, at the level that each was recorded with.

    Args:
        compiler: a clang's name or path; by default the newest that is found.
        plugins: the folder of the plugin; by default where it is installed, or POLICYBRIDGE_PLUGINS says.
        seconds: limit of one compilation.
        memory: limit of one compilation, in MiB.

    Raises:
        NotFoundError: there is no such compiler, or no plugin that it loads.
        InvalidError: a limit is no number.

    """

    name = INLINE.name
    wanted = Wanted(("text", "exec"), units=by_unit)
    features = tuple(TensorSpec(name, ElementType.INT64) for name in (*NUMBERS, INLINING_DEFAULT.name, *TOLD))
    advice = TensorSpec("inlining_decision", ElementType.INT64)
    default = INLINING_DEFAULT.name

    def units(self, observations: Values, contexts: npt.NDArray[np.object_]) -> Sequence[str]:  # noqa: ARG002 - of `Task`
        """Give the function that holds each call; see `Task`."""
        return names_in_hex(observations, "caller")

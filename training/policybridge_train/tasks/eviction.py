"""Register eviction: which live range leaves its register when another one needs it."""

from typing import Final

from policybridge_client.llvm.tasks import EVICT
from policybridge_serdes import ElementType, TensorSpec
from policybridge_train.tasks.allocation import RegisterAllocation

POSITIONS: Final = 33
"""Physical registers, in the order of allocation, and in the last position the live range that wants one."""

_INTEGERS: Final = ("mask", "is_free", "is_hint", "is_local", "max_stage", "min_stage")
_FLOATS: Final = (
    "nr_urgent", "nr_broken_hints", "nr_rematerializable", "nr_defs_and_uses", "weighed_reads_by_max",
    "weighed_writes_by_max", "weighed_read_writes_by_max", "weighed_indvars_by_max", "hint_weights_by_max",
    "start_bb_freq_by_max", "end_bb_freq_by_max", "hottest_bb_freq_by_max", "liverange_size", "use_def_density",
)  # fmt: skip


class Eviction(RegisterAllocation):
    """Which of 33 positions is evicted; the last one is "nothing". Legal is where ``mask`` is not 0.

    The features are those of the live ranges that hold a register (llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp,
    RA_EVICT_FEATURES_LIST). ``progress`` is the share of the function's live ranges that still wait.
    """

    name = EVICT.name
    features = (
        *(TensorSpec(name, ElementType.INT64, (1, POSITIONS)) for name in _INTEGERS),
        *(TensorSpec(name, ElementType.FLOAT, (1, POSITIONS)) for name in _FLOATS),
        TensorSpec("progress", ElementType.FLOAT, (1,)),
    )
    advice = TensorSpec("index_to_evict", ElementType.INT64, (1,))

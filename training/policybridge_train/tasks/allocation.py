"""Register allocation by a policy. A function's spills are its cost.

Eviction is which live range leaves its register when another one needs it; priority is which one gets its register
first. The corpus is compiled at -O2, whatever it was recorded at, and LLVM's remarks tell each function's spills.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_client.llvm.tasks import EVICT, PRIORITY
from policybridge_serdes import ElementType, TensorSpec, Values
from policybridge_train.compiling.job import Wanted
from policybridge_train.tasks.modules import OfCorpus

SPEED: Final = (
    *("-O2", "-vectorize-loops", "-vectorize-slp"),
    *("-mllvm", "-force-remove-attribute=minsize", "-mllvm", "-force-remove-attribute=optsize"),
)
"""Arguments of cc1 that compile bitcode for speed which was recorded for size: each function has the level in its
attributes, which LLVM would obey (llvm/lib/Transforms/IPO/ForceFunctionAttrs.cpp takes them away)."""

POSITIONS: Final = 33
"""Physical registers, in the order of allocation, and in the last position the live range that wants one."""

_INTEGERS: Final = ("mask", "is_free", "is_hint", "is_local", "max_stage", "min_stage")
_FLOATS: Final = (
    "nr_urgent", "nr_broken_hints", "nr_rematerializable", "nr_defs_and_uses", "weighed_reads_by_max",
    "weighed_writes_by_max", "weighed_read_writes_by_max", "weighed_indvars_by_max", "hint_weights_by_max",
    "start_bb_freq_by_max", "end_bb_freq_by_max", "hottest_bb_freq_by_max", "liverange_size", "use_def_density",
)  # fmt: skip


class RegisterAllocation(OfCorpus):
    """A task of LLVM's register allocator, by its interactive mode.

    The objective is ``spills_log2``: the sum over the functions of log2(1 + spills), where spills are the stores,
    reloads and copies that the allocator added, weighed as LLVM does, each times the frequency of its block relative to
    the function's entry (`spill_costs`). ``spills`` is the sum of these.

    Args:
        compiler: a clang's name or path; by default the newest that is found.
        seconds: limit of one compilation.
        memory: limit of one compilation, in MiB.

    Attributes:
        features: what LLVM sends.
        advice: that LLVM expects.
        default: empty: LLVM does not send its own decision.

    Raises:
        NotFoundError: there is no such compiler.
        InvalidError: a limit is no number.

    """

    features: Sequence[TensorSpec]
    advice: TensorSpec
    default: str = ""
    wanted = Wanted(("spills_log2", "spills"), SPEED, units=dict)

    def __init__(self, compiler: str = "", seconds: str = "", memory: str = "") -> None:
        super().__init__(compiler, "", seconds, memory)

    def units(self, observations: Values, contexts: npt.NDArray[np.object_]) -> Sequence[str]:  # noqa: ARG002 - of `Task`
        """Give the function of each decision, which LLVM names; see `Task`."""
        return [str(name) for name in contexts]


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


class Priority(RegisterAllocation):
    """A number for each live range: the highest is allocated first (llvm/lib/CodeGen/MLRegAllocPriorityAdvisor.cpp).

    ``li_size`` is the live range's length in slots, 16 for an instruction. ``stage`` is 1 for a live range as it was,
    2 and 3 for a part of one that was split. ``weight`` is what spilling costs, by length: infinite where it is
    impossible. LLVM reads the priority as an unsigned integer of 32 bits.
    """

    name = PRIORITY.name
    features = (
        TensorSpec("li_size", ElementType.INT64, (1,)),
        TensorSpec("stage", ElementType.INT64, (1,)),
        TensorSpec("weight", ElementType.FLOAT, (1,)),
    )
    advice = TensorSpec("priority", ElementType.FLOAT, (1,))

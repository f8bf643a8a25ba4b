"""Register allocation by a policy: what eviction and priority have in common. A function's spills are its cost.

The corpus is compiled at -O2, whatever it was recorded at, and LLVM's remarks tell each function's spills.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_serdes import TensorSpec, Values
from policybridge_train.compiling.decider import Wanted
from policybridge_train.tasks.modules import OfCorpus

SPEED: Final = (
    *("-O2", "-vectorize-loops", "-vectorize-slp"),
    *("-mllvm", "-force-remove-attribute=minsize", "-mllvm", "-force-remove-attribute=optsize"),
)
"""Arguments of cc1 that compile bitcode for speed which was recorded for size: each function has the level in its
attributes, which LLVM would obey (llvm/lib/Transforms/IPO/ForceFunctionAttrs.cpp takes them away)."""


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

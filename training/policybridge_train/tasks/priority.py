"""Register priority: which live range gets its register first."""

from policybridge_client.llvm.tasks import PRIORITY
from policybridge_serdes import ElementType, TensorSpec
from policybridge_train.tasks.allocation import RegisterAllocation


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

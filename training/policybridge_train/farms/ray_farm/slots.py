"""The free slots of all nodes: a job takes one, and gives it back."""

from collections import deque
from dataclasses import dataclass
from threading import Condition
from time import monotonic
from typing import TYPE_CHECKING, Any

from policybridge_core.errors import PreconditionError, UnavailableError

if TYPE_CHECKING:
    from ray.actor import ActorHandle


@dataclass(frozen=True, eq=False)
class SlotGroup:
    """The slots of one process of a node.

    Attributes:
        node: Ray's id of the node.
        slots: how many compilers the process runs at a time.
        compilers: the actor.

    """

    node: str
    slots: int
    compilers: "ActorHandle[Any]"


class Slots:
    """Usable from any thread.

    Args:
        patience: seconds to wait while there is neither a free nor a taken slot.
        wanted: the resources of a slot, for messages.

    """

    def __init__(self, patience: float, wanted: str) -> None:
        self._patience = patience
        self._wanted = wanted
        self._changed = Condition()
        self._free: deque[SlotGroup] = deque()
        self._groups: set[SlotGroup] = set()
        self._empty_since = monotonic()
        self._error: Exception | None = None
        self._died = ""

    def add(self, group: SlotGroup) -> None:
        """Add the slots of a group, all free."""
        with self._changed:
            self._groups.add(group)
            self._free.extend([group] * group.slots)
            self._changed.notify(group.slots)

    def drop(self, group: SlotGroup) -> bool:
        """Take out the slots of a group that was lost; tell whether they were there."""
        with self._changed:
            if group not in self._groups:
                return False
            self._groups.discard(group)
            self._free = deque(each for each in self._free if each is not group)
            self._empty_since = monotonic()
            return True

    def died(self, why: str) -> None:
        """Keep why a process died before it had slots: whoever waits in vain is told of the last one."""
        with self._changed:
            self._died = f"; the last process that was started died: {why}"

    def take(self) -> SlotGroup:
        """Take a slot, and wait for one.

        Raises:
            PreconditionError: the farm was ended.
            UnavailableError: there was no slot at all for too long.
            Exception: why the farm cannot go on.

        """
        with self._changed:
            while True:
                if self._error is not None:
                    raise self._error
                if self._free:
                    return self._free.popleft()
                if not self._groups and monotonic() - self._empty_since > self._patience:
                    raise UnavailableError(
                        f"no node of the Ray cluster had room for a compiler for {self._patience:g} s: one wants "
                        f"{self._wanted} (ray status tells what there is){self._died}"
                    )
                self._changed.wait(1.0)

    def give(self, group: SlotGroup) -> None:
        """Give a slot back."""
        with self._changed:
            if group in self._groups:
                self._free.append(group)
                self._changed.notify()

    def fail(self, error: Exception) -> None:
        """Let everybody who waits for a slot, or ever will, have an error; the first one stays."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def end(self) -> None:
        """Give no slot any more."""
        self.fail(PreconditionError("the compilations were stopped"))

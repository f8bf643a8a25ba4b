"""The state of each loaded version: the plans of its requests' formats, and its statistics."""

from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from policybridge_server.bounded import BoundedCache
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.open_inference.plan import InferPlan, make_plan
from policybridge_server.open_inference.statistics import Statistics

_MOST_PLANS: Final = 64
_LARGEST_FORMAT: Final = 1 << 16
"""Bytes. Longer formats are planned for each request: clients must not fill the memory with them."""


class VersionState:
    """One version's. It must not hold the version, because it lives only as long as the version is loaded."""

    def __init__(self) -> None:
        self.statistics = Statistics()
        self.plans: BoundedCache[bytes, InferPlan] = BoundedCache(_MOST_PLANS)

    def plan(self, request_format: bytes, loaded: LoadedVersion, schedule: Callable[[Batcher], None]) -> InferPlan:
        """Give the plan for requests of this format; see ``make_plan``."""
        plan = self.plans.get(request_format)
        if plan is None:
            plan = make_plan(request_format, loaded, schedule)
            if len(request_format) <= _LARGEST_FORMAT:
                self.plans.put(request_format, plan)
        return plan


class VersionStates:
    """Those of all versions that were asked and are still loaded."""

    def __init__(self) -> None:
        self._states: WeakKeyDictionary[LoadedVersion, VersionState] = WeakKeyDictionary()

    def of(self, loaded: LoadedVersion) -> VersionState:
        """Give the state of one version."""
        state = self._states.get(loaded)
        if state is None:
            state = self._states[loaded] = VersionState()
        return state

    def drop_unused(self) -> bool:
        """Drop the plans that were not used since the last call; return whether any are left.

        Clients of a version whose plans are kept count as bound to it, and a new version must accept them.
        """
        left = [state.plans.drop_unused() for state in self._states.values()]
        return any(left)

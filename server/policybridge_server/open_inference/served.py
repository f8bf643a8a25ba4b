"""What is kept per loaded version: the plans of its requests' forms, and its statistics."""

from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.open_inference.plan import Plan, make_plan
from policybridge_server.open_inference.statistics import Statistics

_MOST_PLANS: Final = 64
_LARGEST_FORM: Final = 1 << 16


class Served:
    """One version. It must not hold the version itself, which is what it lives by."""

    def __init__(self) -> None:
        self.statistics = Statistics()
        self._plans: dict[bytes, Plan] = {}

    def plan(self, form: bytes, loaded: LoadedVersion, due: Callable[[Batcher], None]) -> Plan:
        """Give the plan for requests of this form; see ``make_plan``."""
        plan = self._plans.get(form)
        if plan is None:
            plan = make_plan(form, loaded, due)
            # A stranger could fill the memory with long forms, or with many, that nobody sends twice.
            if len(form) <= _LARGEST_FORM:
                if len(self._plans) >= _MOST_PLANS:
                    del self._plans[next(iter(self._plans))]
                self._plans[form] = plan
        return plan

    def forget_unused(self) -> bool:
        """Drop the plans that nobody used since the last time; say whether any are left.

        Clients of a version whose plans are kept count as bound to it, and a new version must suit them.
        """
        self._plans = {form: plan for form, plan in self._plans.items() if plan.used}
        for plan in self._plans.values():
            plan.used = False
        return bool(self._plans)


class ServedVersions:
    """All versions that were asked and are still loaded."""

    def __init__(self) -> None:
        self._served: WeakKeyDictionary[LoadedVersion, Served] = WeakKeyDictionary()

    def of(self, loaded: LoadedVersion) -> Served:
        """Give what is kept of one."""
        served = self._served.get(loaded)
        if served is None:
            served = self._served[loaded] = Served()
        return served

    def forget_unused(self) -> bool:
        """Drop the plans that nobody used since the last time; say whether any are left."""
        left = [served.forget_unused() for served in self._served.values()]
        return any(left)

"""Choosing passes for many modules, several at a time, after the search for inlining."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic

from policybridge_client.decisions import PassChoice
from policybridge_train.compiling.decisions import ByDecisions
from policybridge_train.compiling.job import FarmCompiler
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult
from policybridge_train.processes.pool import Running
from policybridge_train.processes.threads import Threads
from policybridge_train.tuning.module import ModuleTuning
from policybridge_train.tuning.passes import PassSearch
from policybridge_train.tuning.search import TUNED, Search
from policybridge_train.tuning.storing import StoreKeeper


@dataclass(frozen=True)
class PassTuning:
    """Chooses passes with the inlining that the store has.

    Attributes:
        compiler: compiles.
        keeper: gets the choices of each module when its search has ended.
        budget: compiles of each module.
        running: the compilers under way; they are ended when an exception ends the search.
        until: when no compile begins any more, by `time.monotonic`.

    """

    compiler: FarmCompiler
    keeper: StoreKeeper
    budget: int
    running: Running
    until: float | None = None

    def run(self, tunings: Sequence[ModuleTuning], jobs: int) -> None:
        """Search for each module, and print the sum of all."""
        found: list[PassSearch] = []
        with Threads[tuple[ModuleTuning, Search], PassSearch](jobs) as threads:
            try:
                begun = [(tuning, search) for tuning in tunings if (search := tuning.search()) is not None]
                for each in begun:
                    threads.submit(each, partial(self._searched, each[0].module, each[1]))
                for _ in begun:
                    (tuning, search), ended = threads.take()
                    found.append(ended())
                    if found[-1].text:
                        self.keeper.put(tuning.module, search, found[-1])
            except BaseException:
                self.running.end()
                raise
            finally:
                self.keeper.write()
        _tell(found)

    def _searched(self, module: Module, search: Search) -> PassSearch:
        inlining = search.shipped

        def compiled(passes: Sequence[PassChoice]) -> CompileResult | None:
            if self.until is not None and monotonic() > self.until:
                return None
            result = self.compiler.compile(module, ByDecisions(inlining, tuple(passes)), TUNED)
            return result if result.ok else None

        found = PassSearch(compiled, self.budget)
        found.run()
        return found


def _tell(found: Sequence[PassSearch]) -> None:
    before, after = sum(each.text for each in found), sum(each.best_text for each in found)
    smaller = sum(each.best_text < each.text for each in found)
    change = 100 * (after / before - 1) if before else 0.0
    sys.stdout.write(f"passes: text {before} -> {after} ({change:+.2f} %), {smaller} of {len(found)} modules smaller\n")

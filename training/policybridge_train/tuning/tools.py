"""The tools that the searches of all modules share, which also prepare each search."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.job import FarmCompiler
from policybridge_train.compiling.module import Module
from policybridge_train.processes.process import Running
from policybridge_train.tuning.choices import OUTLINER, Gains
from policybridge_train.tuning.flips import Decided
from policybridge_train.tuning.progress import Progress
from policybridge_train.tuning.ranking import Ranking
from policybridge_train.tuning.search import Search
from policybridge_train.tuning.sharing import Sharing

INLINE: Final = "inline"
PASSES: Final = "passes"
KINDS: Final = (INLINE, PASSES)
"""The kinds of decisions."""

_MOST_IDLE: Final = {INLINE: 3, PASSES: 7}
"""Rounds in a row without a gain, by the kinds of decisions, after which a module is done …"""

_IDLE_PART: Final = 3
_IDLE_LIMIT: Final = 21
"""… and of passes this part of the budget, up to this limit: one choice in some twenty may help a function yet."""

Start = Callable[[Module, Search], Decided | None]


@dataclass(frozen=True)
class Tools:
    """Shared by the searches of all modules.

    Attributes:
        compiler: compiles.
        ranking: says which flips to try.
        progress: keeps searches on disk; idle ones use no memory.
        budget: compiles of a module, the default's among them.
        start: gives a module's decisions from the store.
        running: the compilers that run.
        searching: tells compilers apart, so that each has its own searches.
        sharing: what modules have in common, if programs are to become smaller and not objects.
        policy: gives a policy's decisions, for modules of which the store has none.
        kinds: the kinds of decisions that are searched.
        gains: say which choices of passes to try.
        spared: patterns of functions whose decisions all stay LLVM's own.

    """

    compiler: FarmCompiler
    ranking: Ranking
    progress: Progress
    budget: int
    start: Start
    running: Running
    searching: str
    sharing: Sharing | None = None
    policy: Callable[[Module, Iterable[str]], Decided] | None = None
    kinds: Sequence[str] = (INLINE,)
    gains: Gains = field(default_factory=Gains)
    spared: Sequence[str] = ()

    @property
    def chooses(self) -> bool:
        """Whether passes are chosen."""
        return PASSES in self.kinds

    @property
    def most_idle(self) -> int:
        """Rounds in a row without a gain after which a module is done."""
        idle = sum(_MOST_IDLE[kind] for kind in self.kinds)
        longer = min(self.budget // _IDLE_PART, _IDLE_LIMIT) - _MOST_IDLE[PASSES]
        return idle + max(0, longer) if self.chooses else idle

    def prepare(self, module: Module, search: Search) -> str:
        """Begin a search, of which the default alone was compiled, with decisions and with moves of the whole module.

        The decisions are the store's, or those of a policy. Give the reason if the policy gave none: the search begins
        with LLVM's own decisions then.
        """
        if self.sharing is not None:
            self.sharing.add(module.name, search.weak)
        if search.matching(self.spared):
            # The outliner, the store's decisions or a policy's would touch these functions, too.
            return ""
        search.whole = [OUTLINER] if self.chooses and not self.gains.late else []
        search.start = self.start(module, search)
        search.started = search.start is not None
        if search.start is None and self.policy is not None:
            search.spent += 1
            try:
                search.start = self._of_kinds(self.policy(module, search.sizes))
            except PolicyBridgeError as error:
                return str(error)
        return ""

    def _of_kinds(self, decided: Decided) -> Decided | None:
        """Give the decisions of the kinds that are searched; ``None`` if there are none."""
        passes = self.gains.effective(decided.passes) if self.chooses else {}
        start = Decided(decided.inlining if INLINE in self.kinds else {}, passes)
        return start if start.count else None

"""Choices of passes as moves of a search, and the gain that is expected of each.

The effect of a choice on a function does not depend on the choices for other functions (``docs/passes.md``). So each
function tries a choice of its own in each compile in which no flip touches it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final

from policybridge_client.decisions.passes import CODEGEN_PASSES
from policybridge_train.compiling.decisions import MODULE, Decided
from policybridge_train.tuning.flips import CallGraph
from policybridge_train.tuning.search import Search

OUTLINER: Final = Decided(passes={MODULE: ["add iroutliner@last"]})
"""LLVM's outliner: a choice of the module, because the size that it gives a function depends on the other functions."""

_LISTED: Final[Mapping[str, float]] = {
    "set ext-tsp & skip early-machinelicm & skip loop-reduce": 0.0250,
    "set ext-tsp": 0.0087,
    "skip x86-isel": 0.0060,
    "add gvn-hoist@early & skip shrink-wrap": 0.0037,
    "skip codegenprepare": 0.0044,
    "skip machine-sink": 0.0042,
    "add sink@last": 0.0040,
    "skip machine-cse": 0.0030,
    "add gvn-hoist@early": 0.0021,
    "add mergereturn,simplifycfg@last & skip InstCombinePass & skip LoopRotatePass & "
    "skip LoopUnrollPass & skip SLPVectorizerPass & skip x86-cmov-conversion": 0.0020,
    "skip shrink-wrap": 0.0016,
    "add newgvn@early & skip x86-fixup-leas & skip x86-optimize-leas": 0.0012,
    "add reg2mem,sroa,instcombine,simplifycfg@last": 0.0012,
    "add aggressive-instcombine@early & add instcombine@last & add nary-reassociate@last & "
    "add separate-const-offset-from-gep@last & add slsr@last": 0.0012,
    "skip InstCombinePass": 0.0010,
    "skip machine-scheduler": 0.0009,
    "add lower-switch,simplifycfg@last": 0.0007,
    "skip x86-optimize-leas": 0.0007,
    "skip block-placement": 0.0006,
    "skip early-machinelicm": 0.0005,
    "skip loop-reduce": 0.0005,
    "skip x86-fixup-leas": 0.0005,
    "skip twoaddressinstruction": 0.0003,
    "add constraint-elimination@early & skip consthoist & "
    "skip expand-memcmp & skip machinelicm & skip tailduplication": 0.0003,
    "add adce@last & add bdce@last & add dse@last & add early-cse<memssa>@last & "
    "add jump-threading@early & add mldst-motion@early & add reassociate@early & add sccp@early": 0.0003,
    "skip early-tailduplication & skip machine-latecleanup & skip opt-phis & skip postra-machine-sink & "
    "skip stack-slot-coloring & skip x86-avoid-sfb & skip lrshrink": 0.0003,
    "add loop(indvars)@last & add loop-mssa(licm)@last & "
    "add simplifycfg<switch-to-lookup>@last & add tailcallelim@last": 0.0003,
    "add loop(loop-reduce)@last": 0.0002,
    "add gvn@early": 0.0002,
    "skip LICMPass": 0.0002,
    "skip SimplifyCFGPass": 0.0002,
    "skip branch-folder": 0.0001,
    "add simplifycfg<hoist-common-insts;sink-common-insts>@last": 0.0001,
    "skip SROAPass": 0.0001,
    "skip machine-cp": 0.0001,
    "skip peephole-opt": 0.0001,
}
"""Choices to try, and the share of a function's bytes that each saved in earlier searches.

Those with ``&`` between are tried together first: the choices that make most functions smaller, and choices that change
few functions. Where they change nothing together, none of them is tried alone in that function as it is.
"""

_ALONE: Final = 0.0002
"""The share assumed for a choice that is listed only as a part of a group."""

_AND: Final = " & "
_GROUP_OF: Final = {each: words for words in _LISTED if _AND in words for each in words.split(_AND)}
PRIOR: Final[Mapping[str, float]] = {**_LISTED, **{each: _ALONE for each in _GROUP_OF if each not in _LISTED}}
"""All choices that are tried, together and alone."""

_PRIOR_BYTES: Final = 20_000
"""The prior weighs as much as trials on functions of this many bytes."""

_AGAIN: Final = 0.1
"""The part of the gain that is expected of a choice that did not help the function as it was, or is taken back."""


@dataclass(frozen=True)
class Choice:
    """A choice for one function, which is made, or taken back where it is made.

    Attributes:
        function: whose passes it is about.
        words: the action and the name; of several choices with ``&`` between.
        affected: the function, as a set (`CallGraph`).

    """

    function: str
    words: str
    affected: int
    read: int = 0

    @property
    def turned(self) -> Decided:
        """The choice, by function."""
        return Decided(passes={self.function: self.words.split(_AND)})

    @property
    def name(self) -> str:
        """What tells it from the other moves of its module."""
        return f"{self.words} {self.function}"

    def surroundings(self, sizes: Mapping[str, int]) -> int:
        """Give a number that changes, most often, where the function has changed."""
        return sizes.get(self.function, 0)


class Gains:
    """The gain that is expected of choices, learnt from those tried in all modules. Usable from any thread.

    Args:
        late: whether only choices about code generation have an effect, as in full LTO.
        prior: the choices, and the share that each is assumed to save before any was tried; see `PRIOR`.

    """

    def __init__(self, *, late: bool = False, prior: Mapping[str, float] = PRIOR) -> None:
        self.late = late
        self._lock = Lock()
        self._gained = {words: part * _PRIOR_BYTES for words, part in prior.items()}
        self._bytes = dict.fromkeys(prior, float(_PRIOR_BYTES))

    def add(self, choice: Choice, size: float, credit: float) -> None:
        """Learn from a tried choice."""
        with self._lock:
            self._gained[choice.words] += max(0.0, -credit)
            self._bytes[choice.words] += size

    def parts(self) -> list[tuple[str, float]]:
        """Give each choice with the part of a function's bytes that it saves on average, the greatest part first."""
        with self._lock:
            found = [(words, self._gained[words] / self._bytes[words]) for words in self._gained]
        return sorted(found, key=lambda each: -each[1])

    def best(self, search: Search, graph: CallGraph, without: Collection[str]) -> list[tuple[float, Choice]]:
        """Give the choice that each function tries next, with the bytes that it is expected to save.

        Args:
            search: of the module; it has the moves that were tried.
            graph: of the module.
            without: the names of moves that are under way.

        """
        late = self.late or MODULE in search.decided.passes
        # After the outliner, which is the last of LLVM's passes, only code generation works on one function at a time.
        parts = [each for each in self.parts() if not late or is_codegen(each[0])]
        found = []
        for (function, size), alone in zip(search.sizes.items(), graph.each_of(search.sizes), strict=True):
            best = max(_untried(search, function, parts, without), default=None)
            if best is not None:
                found.append((best[0] * size, Choice(function, best[1], alone)))
        return found


def is_codegen(words: str) -> bool:
    """Tell whether a choice is about code generation."""
    pairs = [each.split(" ", 1) for each in words.split(_AND)]
    return all(action == "set" or (action == "skip" and name in CODEGEN_PASSES) for action, name in pairs)


def _untried(
    search: Search, function: str, parts: list[tuple[str, float]], without: Collection[str]
) -> Iterator[tuple[float, str]]:
    """Give the choices that the function has not tried as it is, up to the first that it never tried."""
    for words, part in parts:
        name = f"{words} {function}"
        tried = search.tried.get(name)
        if name in without or (tried is not None and tried.surroundings == search.sizes[function]):
            continue
        group = search.tried.get(f"{_GROUP_OF.get(words)} {function}")
        if group is not None and group.surroundings == search.sizes[function] and not group.credit:
            continue
        chosen = search.decided.passes.get(function, ())
        if tried is None and not any(each in chosen for each in words.split(_AND)):
            yield part, words
            return
        if tried is None or abs(tried.credit) > 0:
            # It changed the function: as the function is now, it may help, or help no more.
            yield part * _AGAIN, words

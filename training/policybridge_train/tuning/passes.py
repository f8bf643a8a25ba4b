"""Searches the passes of each function; one compile measures the effect of a choice on every function.

The effect of a choice on a function does not depend on the choices for other functions (``docs/passes.md``). So one
compile with a choice for all functions measures it for each of them, and one compile tries the next best choice of
every function.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from policybridge_client.decisions import ALL_FUNCTIONS, PassChoice, function_key
from policybridge_client.decisions.passes import Action
from policybridge_train.compiling.result import CompileResult

Words = tuple[Action, str]
"""A choice without its function: the action and the name of the pass."""

ORDER: Final[tuple[Words, ...]] = (
    ("skip", "early-machinelicm"),
    ("set", "ext-tsp"),
    ("skip", "loop-reduce"),
    ("skip", "block-placement"),
    ("skip", "machine-cse"),
    ("skip", "codegenprepare"),
    ("add", "gvn-sink@early"),
    ("skip", "machine-sink"),
    ("add", "gvn-hoist@early"),
    ("add", "loop(loop-reduce)@last"),
    ("add", "lower-switch,simplifycfg@last"),
    ("add", "reg2mem,sroa,instcombine,simplifycfg@last"),
    ("skip", "x86-cmov-conversion"),
    ("add", "newgvn@early"),
    ("add", "sink@last"),
    ("skip", "x86-isel"),
    ("skip", "x86-fixup-leas"),
    ("skip", "x86-optimize-leas"),
    ("skip", "machinelicm"),
    ("skip", "twoaddressinstruction"),
    ("add", "gvn@early"),
    ("skip", "LICMPass"),
    ("skip", "SimplifyCFGPass"),
    ("skip", "shrink-wrap"),
    ("skip", "tailduplication"),
    ("skip", "SLPVectorizerPass"),
    ("skip", "LoopRotatePass"),
    ("skip", "InstCombinePass"),
    ("skip", "expand-memcmp"),
    ("add", "mergereturn,simplifycfg@last"),
    ("add", "constraint-elimination@early"),
    ("add", "gvn-sink@last"),
    ("skip", "branch-folder"),
    ("skip", "LoopUnrollPass"),
    ("skip", "consthoist"),
    ("add", "simplifycfg<hoist-common-insts;sink-common-insts>@last"),
    ("skip", "SROAPass"),
    ("skip", "machine-cp"),
    ("skip", "peephole-opt"),
    ("skip", "machine-scheduler"),
)
"""The choices to try; the most successful ones of earlier searches come first."""

_OUTLINER: Final = PassChoice(ALL_FUNCTIONS, "add", "iroutliner@last")
_LABELLING: Final = 2 / 3
"""The part of a budget that measures single choices; the rest combines them."""
_FEWEST: Final = 4

Compile = Callable[[Sequence[PassChoice]], CompileResult | None]
"""Compiles with choices; ``None`` if there is no object, or if no time is left."""


@dataclass
class _OfFunction:
    size: float
    taken: list[Words] = field(default_factory=list)
    gains: dict[Words, float] = field(default_factory=dict)
    left: list[Words] = field(default_factory=list)

    def queue(self) -> None:
        """Queue the choices that gain; the greatest gain comes last."""
        self.left = sorted((each for each, gain in self.gains.items() if gain > 0), key=lambda each: self.gains[each])


class PassSearch:
    """Chooses the passes of a module's functions so that its text becomes smaller, and never larger.

    Args:
        compiled: compiles the module without a change of its inlining.
        budget: the number of compiles, including the one without choices.

    Attributes:
        text: bytes of text without choices; 0 if that compile failed.
        best_text: bytes of text with `best`.
        best: the choices of the smallest object.

    """

    def __init__(self, compiled: Compile, budget: int) -> None:
        self._compile = compiled
        self._left = budget
        self._functions: dict[str, _OfFunction] = {}
        self.text = 0
        self.best_text = 0
        self.best: Sequence[PassChoice] = ()

    def run(self) -> None:
        """Search until the budget is spent or nothing is left to try."""
        budget = self._left
        plain = self._compiled(())
        if plain is None:
            return
        self.text = self.best_text = plain.text
        self._functions = {name: _OfFunction(size) for name, size in plain.costs.items()}
        for words in ORDER[: max(_FEWEST, int(_LABELLING * (budget - 1)))]:
            self._label(words)
        for each in self._functions.values():
            each.queue()
        # The last two compiles: the taken choices of all functions, then the best choices and the outliner, which works
        # on all functions at once.
        while self._left > 2 and any(each.left for each in self._functions.values()):
            self._combine()
        self._compiled(self._choices({name: each.taken for name, each in self._functions.items()}))
        self._compiled([*self.best, _OUTLINER])

    def _compiled(self, choices: Sequence[PassChoice]) -> CompileResult | None:
        if self._left <= 0:
            return None
        self._left -= 1
        result = self._compile(choices)
        if result is not None and result.text < self.best_text:
            self.best_text, self.best = result.text, tuple(choices)
        return result

    def _label(self, words: Words) -> None:
        result = self._compiled([PassChoice(ALL_FUNCTIONS, *words)])
        for name, size in result.costs.items() if result else ():
            if name in self._functions:
                self._functions[name].gains[words] = self._functions[name].size - size

    def _combine(self) -> None:
        """Compile with the next best choice of each function; a function keeps the choice if it becomes smaller."""
        tried = {name: [*each.taken, *each.left[-1:]] for name, each in self._functions.items()}
        result = self._compiled(self._choices(tried))
        for name, each in self._functions.items():
            if not each.left:
                continue
            each.left.pop()
            if result is not None and result.costs.get(name, each.size) < each.size:
                each.taken, each.size = tried[name], result.costs[name]

    def _choices(self, taken: Mapping[str, Sequence[Words]]) -> list[PassChoice]:
        return [PassChoice(function_key(name), *words, name) for name, each in taken.items() for words in each]

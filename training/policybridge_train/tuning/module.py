"""Tuning one module: compile by compile, within its budget."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple

from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.job import FarmCompiler
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult
from policybridge_train.tuning.flips import MODULE, Decided
from policybridge_train.tuning.round import Round
from policybridge_train.tuning.search import TUNED, Search
from policybridge_train.tuning.sharing import Sharable
from policybridge_train.tuning.starting import take_start
from policybridge_train.tuning.tools import INLINE, PASSES, Tools

_CLOSING: Final = 2
"""The last compiles of a budget, which are for checking: the second is needed where the first shows a larger region."""

_CHECKED_EVERY: Final = 12
"""Compiles after which the accepted decisions are compiled alone, so that an interrupted search keeps them."""

_RETUNED: Final = 10
"""The divisor of the budget for a module that a store has decisions for: most of them still apply."""

_WHOLE: Final = 4
"""The divisor of the budget: this share is reserved for the moves of the whole module and the compiles after them …"""

_LEAST_LEFT: Final = 8
"""… in compiles at least: of 16 C modules none won by the outliner, so that a small budget tries all else before."""


class _Compile(NamedTuple):
    """The next compile: its decisions, and the calls after success and after failure."""

    decided: Decided
    settle: Callable[[CompileResult], None]
    fail: Callable[[], None]


def _nothing() -> None:
    """Learn nothing from a compile that was ended."""


class ModuleTuning:
    """The search for one module. Usable from any thread: compiles of one module may overlap.

    Args:
        module: to tune.
        tools: compiler, ranking and progress.

    Attributes:
        failure: the compiler's last error; empty if it never failed.
        done: whether no compile is left to begin.

    """

    def __init__(self, module: Module, tools: Tools) -> None:
        self.module = module
        self.failure = ""
        self.done = False
        self._tools = tools
        self._most_idle = tools.most_idle
        self._key = self._named()
        self._lock = Lock()
        self._search: Search | None = None
        self._rounds: list[Round] = []
        self._under_way = 0
        self._alone = False
        self._closing = False
        self._last_checks = _CLOSING
        self._has_last = False
        self._seconds = 0.0
        self._share()

    @property
    def seconds_to_close(self) -> float:
        """The wall time, about, after which a search that is closed now has ended."""
        return _CLOSING * self._seconds if self._has_last and not self.done else 0.0

    def close(self) -> None:
        """Begin no more compiles, except of accepted moves that were not compiled alone yet and of the whole module."""
        self._closing = True

    def _share(self) -> None:
        # What an earlier run compiled counts for the other modules, too.
        if self._tools.sharing is not None and (search := self._tools.progress.search(self._key)):
            self._tools.sharing.add(self.module.name, search.weak)

    def _named(self) -> str:
        try:
            return f"{self.module.name}@{self.module.digest} {self._tools.searching}"
        except OSError as error:
            self.failure, self.done = f"{self.module.name}: its bitcode cannot be read: {error}", True
            return ""

    def step(self) -> bool:
        """Compile once more and learn from it; False where nothing can begin now: another compile must end before.

        A compiler that fails costs a compile; earlier results stand.

        Raises:
            PolicyBridgeError: the compilers were ended, and this one learnt nothing.

        """
        with self._lock:
            due = self._next()
            if due is None:
                return False
            self._under_way += 1
        begun, learn = monotonic(), _nothing
        try:
            learn = self._compiled(due)
        finally:
            # At once: between the two another thread would count this compile twice, and end the search one too early.
            with self._lock:
                try:
                    learn()
                finally:
                    self._seconds = monotonic() - begun
                    self._leave()
        return True

    def _compiled(self, due: _Compile) -> Callable[[], None]:
        """Compile; give the call that learns from it, which needs the lock."""
        try:
            measured = compile_with(self._tools.compiler, self.module, due.decided)
        except PolicyBridgeError as error:
            if self._tools.running.over:
                raise
            return partial(self._failed, due, error)
        return partial(self._settle, due, measured)

    def _settle(self, due: _Compile, measured: CompileResult) -> None:
        try:
            due.settle(measured)
        except PolicyBridgeError as error:
            if self._tools.running.over:
                raise
            self._failed(due, error)

    def _failed(self, due: _Compile, error: PolicyBridgeError) -> None:
        self.failure = str(error)
        due.fail()

    def search(self) -> Search | None:
        """Give the search as it is; ``None`` where the module was not compiled."""
        with self._lock:
            return self._search or self._tools.progress.search(self._key)

    def refuse(self, *, refused: bool) -> Search | None:
        """Keep this module's decisions out of the store if a program became larger with them, or let them in again."""
        search = self.search()
        if search is not None:
            search.refused = search.best_object if refused else ""
            self._tools.progress.keep(self._key, search)
        return search

    def _leave(self) -> None:
        self._under_way -= 1
        self._alone = False
        if self._search is not None:
            self._has_last = not self._search.is_checked or bool(self._search.whole)
            self._tools.progress.keep(self._key, self._search)
        if not self._under_way:
            self._search = None

    def _next(self) -> _Compile | None:
        if self.done or self._alone:
            return None
        if self._search is None and not self._under_way:
            self._search = self._tools.progress.search(self._key)
        search = self._search
        if search is None:
            self.done = self._closing and not self._under_way
            return None if self.done else self._by_itself(_Compile(Decided(), self._begin, self._end))
        left = self._budget(search) - search.spent - self._under_way
        if left <= 0 or search.closed:
            self.done = True
            return None
        if search.shared is None and self._tools.sharing is not None:
            search.share(self._tools.sharing.of(self.module.name, Sharable.of(search)))
        if search.start is not None:
            return self._by_itself(self._started(search.start, search))
        return self._searched(search, left)

    def _searched(self, search: Search, left: int) -> _Compile | None:
        """Give the next compile of a search that has begun: a round, a check, or a move of the whole module."""
        ends = self._closing or search.idle >= self._most_idle
        if (ends and search.is_checked and not search.whole) or not self._last_checks:
            search.closed, self.done = not self._closing, True
            return None
        reserve = self._tools.budget // _WHOLE
        whole = bool(search.whole) and (ends or left <= reserve >= _LEAST_LEFT)
        if search.is_checked:
            return self._by_itself(self._of_whole(search)) if whole else self._try(search)
        due = whole or ends or left <= _CLOSING or search.spent - search.checked_at >= _CHECKED_EVERY
        return self._check(search) if due else self._try(search)

    def _by_itself(self, due: _Compile) -> _Compile | None:
        if self._under_way:
            return None
        self._alone = True
        return due

    def _end(self) -> None:
        self.done = True

    def _budget(self, search: Search) -> int:
        whole = self._tools.budget
        return min(whole, max(2, whole // _RETUNED)) if search.started else whole

    def _begin(self, measured: CompileResult) -> None:
        self._search = Search.begin(measured)
        self.failure = self._tools.prepare(self.module, self._search) or self.failure

    def _of_whole(self, search: Search) -> _Compile:
        """Compile a move of the whole module: it has no other credit than the module's bytes."""
        decided = search.pinned().turned(search.whole[0])
        self._last_checks -= self._closing and not self._under_way

        def settle(measured: CompileResult) -> None:
            search.whole.pop(0)
            if search.note(measured, decided.passes):
                search.go_on(decided, measured)
                search.idle = 0

        def fail() -> None:
            search.whole.pop(0)
            search.spent += 1

        return _Compile(decided, settle, fail)

    def _started(self, start: Decided, search: Search) -> _Compile:
        """Compile the decisions of the store or of a policy."""

        def settle(measured: CompileResult) -> None:
            take_start(search, start, measured)

        def fail() -> None:
            search.spent += 1
            search.start, search.started = None, False

        return _Compile(start, settle, fail)

    def _check(self, search: Search) -> _Compile | None:
        """Compile the accepted decisions alone."""
        decided = search.decided
        self._last_checks -= self._closing and not self._under_way

        def fail() -> None:
            search.spent += 1
            search.closed = self.done = True

        return self._by_itself(_Compile(search.pinned(), lambda measured: search.take(decided, measured), fail))

    def _try(self, search: Search) -> _Compile | None:
        tools = self._tools
        ranking = tools.ranking if INLINE in tools.kinds and MODULE not in search.decided.passes else None
        gains = tools.gains if PASSES in tools.kinds else None
        tried = Round(search, ranking, self._rounds, gains, search.matching(tools.spared))
        if not tried.moves and self._under_way:
            # All that is left is under way.
            return None
        if not tried.moves:
            search.idle = self._most_idle
            return None if search.is_checked else self._check(search)
        self._rounds.append(tried)

        def settle(measured: CompileResult) -> None:
            self._rounds.remove(tried)
            labels = tried.settle(measured)
            tools.ranking.add(labels)
            tools.progress.add_labels(labels)

        def fail() -> None:
            self._rounds.remove(tried)
            tried.fail()

        return _Compile(tried.decided, settle, fail)


def compile_with(compiler: FarmCompiler, module: Module, decided: Decided, *, keep: bool = False) -> CompileResult:
    """Compile a module with decisions; ``keep`` its object.

    Raises:
        CompileError: there is no object.
        PolicyBridgeError: the compilers were ended.

    """
    return compiler.compile(module, decided.decider, replace(TUNED, keep=keep)).checked(module.name)

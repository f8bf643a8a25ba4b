"""Answering one compiler's observations: with the policy's advice, or with LLVM's own default.

The default answers after a failure, and beyond the growth limit.
"""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

import numpy as np

from policybridge_client.contract import ClientSession
from policybridge_client.llvm.growth import Growth
from policybridge_client.llvm.inliner import Defaults
from policybridge_client.llvm.statistics import CompilationStatistics
from policybridge_client.llvm.tasks import Task, check_llvm_signature
from policybridge_core.errors import DeadlineError, InvalidError, PolicyBridgeError
from policybridge_serdes import Signature, Values
from policybridge_serdes.interactive import Context, Event, Header

OpenSession = Callable[[Signature, str], ClientSession]
"""Opens a session for a signature and a context."""

_TIMEOUTS: Final = 3.0
_EACH: Final = 0.1


class Patience:
    """Bounds all waits of a compilation: three time-outs, and a tenth of a time-out more for each decision.

    Without it, a server that answers each time just before the time-out would hold a compilation with thousands of
    decisions for days.

    Args:
        timeout: limit of one wait, in seconds.

    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._decisions = 0
        self._nanoseconds = 0

    def count(self, nanoseconds: int) -> None:
        """Count a decision that took this long."""
        self._decisions += 1
        self._nanoseconds += nanoseconds

    def check(self) -> None:
        """Raise `DeadlineError` if the waits took too long together."""
        allowed = self._timeout * (_TIMEOUTS + _EACH * self._decisions)
        if self._nanoseconds > allowed * 1e9:
            raise DeadlineError(
                f"the server took {self._nanoseconds / 1e9:.3g} s for {self._decisions} decisions, "
                f"and has {allowed:.3g} s for that number"
            )


class Responder:
    """Answers the events of one compiler process.

    Args:
        task: the task of the compilation.
        open_session: called at the first observation after a header, so that a compilation without observations opens
            no session. It is not called again after a failure.
        defaults: LLVM's own decisions, as far as they are known.
        statistics: counts the decisions.
        patience: bounds all waits for the server together.
        growth: bounds how much the policy can make a module grow.
        go_on: whether the defaults answer after a failure.

    """

    def __init__(  # noqa: PLR0913 - the parts of one compilation
        self,
        task: Task,
        open_session: OpenSession,
        defaults: Defaults,
        statistics: CompilationStatistics,
        *,
        patience: Patience,
        growth: Growth,
        go_on: bool,
    ) -> None:
        self._patience = patience
        self._growth = growth
        self._task = task
        self._open_session = open_session
        self._defaults = defaults
        self._statistics = statistics
        self._go_on = go_on
        self._signature: Signature | None = None
        self._session: ClientSession | None = None
        self._context = ""
        self._failed = False

    def answer(self, event: Event, reply: Callable[[bytes], None]) -> None:
        """Handle an event; for an observation, call ``reply`` with the bytes for LLVM.

        Raises:
            PolicyBridgeError: there is neither advice nor a default. The compiler still waits, so end it.

        """
        if isinstance(event, bytes):
            self._observe(event, reply)
        elif isinstance(event, Header):
            check_llvm_signature(event.signature)
            self._begin(self._defaults.extended(event.signature))
        elif isinstance(event, Context):
            # LLVM's inliner gives an empty name. Then the context is the source, with which the session was opened.
            self._context = event.name
            if event.name and self._session is not None:
                self._session.context(event.name)

    def take_session(self) -> ClientSession | None:
        """Give the session away, which is open; ``None``: there is none."""
        session, self._session = self._session, None
        return session

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _begin(self, signature: Signature) -> None:
        # A command may compile several sources. They share one session as long as the features stay the same.
        if signature != self._signature:
            self.close()
        self._signature = signature
        self._growth.begin()
        self._statistics.headers += 1

    def _observe(self, payload: bytes, reply: Callable[[bytes], None]) -> None:
        if self._signature is None:
            raise InvalidError("an observation came before the header line with the features")
        observation: Values = np.ndarray(1, self._signature.features.dtype, self._defaults.completed(payload))
        if self._growth.reached:
            reply(self._defaults.answer(observation))
            self._statistics.limited += 1
            return
        if not self._failed:
            try:
                self._ask(self._signature, observation, reply)
            except PolicyBridgeError as error:
                self._fail(error)
            else:
                return
        reply(self._defaults.answer(observation))
        self._statistics.defaults += 1

    def _ask(self, signature: Signature, observation: Values, reply: Callable[[bytes], None]) -> None:
        session = self._session or self._open(signature)
        self._patience.check()
        begun = perf_counter_ns()
        advice = session.evaluate(observation)
        answer = self._task.legal(observation, advice)
        reply(answer)
        nanoseconds = perf_counter_ns() - begun
        self._statistics.count(answer, nanoseconds)
        self._patience.count(nanoseconds)
        if self._defaults.known:
            self._growth.count(observation, answer)

    def _open(self, signature: Signature) -> ClientSession:
        self._session = self._open_session(signature, self._context)
        self._statistics.sessions.append(self._session.id)
        return self._session

    def _fail(self, error: PolicyBridgeError) -> None:
        self._failed = True
        self._statistics.failure = error
        self.close()
        if not self._go_on:
            raise error

"""Starting a compiler and answering its observations."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter

from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, Connection
from policybridge_client.llvm.asked import check_asks, serve, start_asking
from policybridge_client.llvm.compilers import CompilerCommand, source_of
from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.growth import Growth
from policybridge_client.llvm.inliner import defaults_of
from policybridge_client.llvm.process import CompilerProcess, run_plain
from policybridge_client.llvm.record import Compilation, report_outcome, scope_labels
from policybridge_client.llvm.responder import Patience, Responder
from policybridge_client.llvm.signals import Interrupts
from policybridge_client.llvm.statistics import FAILED, CompilationStatistics, Fallback, Report
from policybridge_client.llvm.surroundings import Surroundings
from policybridge_client.llvm.targets import target_of
from policybridge_client.llvm.tasks import Task, load_task
from policybridge_client.llvm.versions import UNKNOWN, llvm_version
from policybridge_client.local import decide_here, takes_forms
from policybridge_client.outage import Outage
from policybridge_client.trace_context import with_trace_context
from policybridge_core.errors import OutOfScopeError, PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyReference, SessionOptions, Signature


def run_compiler(
    command: Sequence[str],
    config: HostConfig,
    surroundings: Surroundings | None = None,
    *,
    connection: Connection | None = None,
    interrupts: Interrupts | None = None,
) -> Report:
    """Run a compiler with the decisions of a policy.

    Args:
        command: the compiler and its arguments, as without PolicyBridge.
        config: the policy, and the behaviour without its advice.
        surroundings: the compiler's folder, environment, streams and limits.
        connection: a connection that replaces ``config.server`` and stays open; for many compilations in one process.
        interrupts: for programs that turn signals into exceptions.

    Returns:
        The report, also if there was no advice (see `Report.status`).

    Raises:
        InvalidError: the command starts no known compiler, or one that never asks about this task.
        NotFoundError: the task is unknown.
        OSError: the compiler cannot be started.

    """
    compiler = CompilerCommand.of(command)
    task = load_task(config.task)
    check_asks(compiler.kind, task)
    with ExitStack() as stack:
        if connection is None:
            connection = connect(config.server, timeout=config.timeout, credentials=config.credentials)
            stack.callback(connection.close)
        host = _Host(
            compiler,
            task,
            config,
            surroundings or Surroundings(),
            connection,
            interrupts or Interrupts(),
            CompilationStatistics(task.choices),
        )
        stack.callback(host.close)
        report = host.run()
        report_outcome(connection, report, host.surroundings.cwd, host.session)
    return report


@dataclass
class _Host:
    """One compilation."""

    compiler: CompilerCommand
    task: Task
    config: HostConfig
    surroundings: Surroundings
    connection: Connection
    interrupts: Interrupts
    statistics: CompilationStatistics
    process: CompilerProcess | None = None
    session: ClientSession | None = None
    begun: float = field(default_factory=perf_counter)

    def run(self) -> Report:
        outage = Outage(self.config.server, self.config.reference, self._retry_after)
        try:
            outage.check()
        except PolicyBridgeError as error:
            return self._end_without(error)
        try:
            if self.config.fallback == "default":
                self.connection.check()
            status = self._ask()
        except PolicyBridgeError as error:
            outage.remember(error)
            return self._end_without(error)
        outage.remember(self.statistics.failure)
        return self._report(status, self._fallback_within())

    def _report(self, status: int, fallback: Fallback | None = None, error: PolicyBridgeError | None = None) -> Report:
        report = Report(
            self.compiler.words,
            self.task.name,
            status,
            perf_counter() - self.begun,
            self.statistics,
            fallback,
            error,
        )
        if self.process is None:
            return report
        return replace(report, late=self.process.late, cpu_seconds=self.process.cpu_seconds)

    @property
    def _retry_after(self) -> float:
        return self.config.retry_after if self.config.fallback == "default" else 0

    def _fallback_within(self) -> Fallback | None:
        failure = self.statistics.failure
        return Fallback(str(failure), failure.status, self.statistics.defaults) if failure else None

    def _end_without(self, error: PolicyBridgeError) -> Report:
        # A policy that is not for such a module is no fault.
        if self.config.fallback == "error" and not isinstance(error, OutOfScopeError):
            return self._report(FAILED, None, error)
        restarted = self.process is not None
        if restarted and not self.compiler.repeatable:
            why = "the compiler uses stdin or stdout, so that it cannot be run once more without the policy"
            return self._report(FAILED, None, PreconditionError(f"{error}; {why}"))
        self.process = run_plain(self.compiler.words, self.surroundings, self.interrupts)
        return self._report(self.process.status, Fallback(str(error), error.status, restarted=restarted))

    def _ask(self) -> int:
        defaults = defaults_of(self.compiler, self.task, self._llvm)
        with self.interrupts.guarded() as stack:
            with self.interrupts.held():
                self.process, channel = start_asking(
                    stack, self.compiler, self.task, self._growth_limit, defaults, self.surroundings
                )
            go_on = self.config.fallback == "default" and defaults.known
            responder = Responder(
                self.task,
                self._open,
                defaults,
                self.statistics,
                patience=Patience(self.config.timeout),
                growth=Growth(self.config.growth_limit),
                go_on=go_on,
            )
            with closing(responder):
                serve(self.process, channel, lambda event: responder.answer(event, channel.reply))
                self.session = responder.take_session()
                return self.process.wait()

    def close(self) -> None:
        """End the session, if the compilation ended without its outcome."""
        if self.session is not None:
            self.session.close()

    @cached_property
    def _llvm(self) -> int:
        return llvm_version(self.compiler.start) if self.config.llvm is None else self.config.llvm

    @property
    def _growth_limit(self) -> str:
        return f"{self.config.growth_limit:g}"

    def _open(self, signature: Signature, context: str) -> ClientSession:
        folder = str(Path(self.surroundings.cwd or ".").absolute())
        labels = Compilation(self.compiler.words, folder, self.task.name, self._growth_limit).to_labels()
        if "target" not in self.config.labels and (target := target_of(self.compiler)):
            labels["target"] = target
        if self._llvm != UNKNOWN:
            labels["llvm"] = str(self._llvm)
        source, explored = source_of(self.compiler.arguments), self.config.exploration
        options = SessionOptions(
            context or source,
            self.config.options,
            with_trace_context({**labels, **scope_labels(self.compiler), **self.config.labels}),
            None if explored is None else explored.of_module(source),
            evaluates=takes_forms(self.config.evaluate, self.config.server, signature.advice),
        )
        session = self.connection.open(self._reference(), signature, options)
        if options.evaluates:
            spool = self.statistics.spool if self.config.spool else None
            asks = self.config.evaluate == "auto"
            session = decide_here(session, signature, options.exploration, asks=asks, spool=spool)
        self.statistics.policy = session.policy
        self.statistics.not_asked = [kind for kind in session.decides if kind != signature.advice.name]
        return session

    def _reference(self) -> PolicyReference:
        # All sessions of one compilation use one version; a second signature needs a second session.
        first = self.statistics.policy
        return self.config.reference if first is None else PolicyReference(first.name, version=first.version)

"""Running a compiler with the decisions of a store by sequence, in LLVM's interactive mode.

Decisions by site need the plugin, which the native launcher ``policybridge-run`` adds to the compiler's command.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Final, Literal

from policybridge_client.answers import Answers
from policybridge_client.decisions.files import path_in_store, read_store
from policybridge_client.decisions.keys import FeaturesKeys
from policybridge_client.decisions.store import Heading, Section, Store
from policybridge_client.decisions.text import By
from policybridge_client.llvm.asked import check_asks
from policybridge_client.llvm.bounds import GROWTH_LIMIT
from policybridge_client.llvm.compilers import CompilerCommand, Kind, compiles, source_of
from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.inliner import defaults_of
from policybridge_client.llvm.process import run_plain
from policybridge_client.llvm.signals import Interrupts
from policybridge_client.llvm.statistics import FAILED, Applied, CompilationStatistics, Fallback, Report
from policybridge_client.llvm.surroundings import Surroundings
from policybridge_client.llvm.tasks import INLINE
from policybridge_client.llvm.versions import llvm_version
from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_core.lacking import lacking
from policybridge_serdes import SessionOptions, Signature, Values

_NAME: Final = "decisions"

_DEFAULT = "inlining_default"


@dataclass(frozen=True)
class DecisionsConfig:
    """How a store is applied.

    Attributes:
        store: the file.
        fallback: the behaviour if the store cannot be read. ``default``: LLVM's own decisions; ``error``: nothing is
            compiled.
        growth_limit: as in `HostConfig`; it bounds a store that inlines everything.

    """

    store: Path
    fallback: Literal["default", "error"] = "default"
    growth_limit: float = GROWTH_LIMIT


def run_with_decisions(
    command: Sequence[str],
    config: DecisionsConfig,
    surroundings: Surroundings | None = None,
    *,
    interrupts: Interrupts | None = None,
) -> Report:
    """Run a compiler with the decisions of a store.

    Args:
        command: the compiler and its arguments, as without PolicyBridge.
        config: the store.
        surroundings: the compiler's folder, environment and streams.
        interrupts: for programs that turn signals into exceptions.

    Raises:
        InvalidError: the command starts no known compiler, or one that never inlines.
        OSError: the compiler cannot be started.

    """
    compiler = CompilerCommand.of(command)
    check_asks(compiler.kind, INLINE)
    run = _Run(compiler, config, surroundings or Surroundings(), interrupts or Interrupts())
    return run.report()


def run_as_it_is(command: Sequence[str], *, interrupts: Interrupts | None = None) -> Report:
    """Run a compiler, of any kind, as it is.

    Raises:
        OSError: the compiler cannot be started.

    """
    begun = perf_counter()
    status = run_plain(list(command), Surroundings(), interrupts or Interrupts()).status
    return Report(list(command), INLINE.name, status, perf_counter() - begun, CompilationStatistics())


@dataclass(frozen=True)
class _Run:
    compiler: CompilerCommand
    config: DecisionsConfig
    surroundings: Surroundings
    interrupts: Interrupts

    def report(self) -> Report:
        # Without a file, opt reads its standard input.
        if self.compiler.kind is not Kind.OPT and not compiles(self.compiler.arguments):
            return self._plainly()
        try:
            store = read_store(self.config.store)
        except PolicyBridgeError as error:
            return self._without(error)
        if self.compiler.is_thinlto_backend:
            return self._plainly("clang runs no plugins with -fthinlto-index")
        section = self._section(store, "sequence")
        if section is None:
            return self._plainly(self._unused(store))
        if not defaults_of(self.compiler, INLINE, self._llvm).known:
            return self._plainly(
                "this LLVM tells its own decisions at -Oz only; elsewhere policybridge-run and a plugin apply a store"
            )
        return self._interactive(section)

    def _without(self, error: PolicyBridgeError) -> Report:
        if self.config.fallback == "error":
            return Report(self.compiler.words, INLINE.name, FAILED, 0, CompilationStatistics(), None, error)
        return replace(self._plainly(), fallback=Fallback(str(error), error.status))

    def _plainly(self, reason: str = "") -> Report:
        begun = perf_counter()
        status = run_plain(self.compiler.words, self.surroundings, self.interrupts).status
        report = Report(self.compiler.words, INLINE.name, status, perf_counter() - begun, CompilationStatistics())
        return replace(report, note=reason and f"all decisions are the compiler's own: {reason}")

    def _unused(self, store: Store) -> str:
        section = self._section(store, "site")
        if section is None:
            why = store.mismatch(self._heading("site"))
            return why and f"{self.config.store.name} {why}"
        if not section.heading.names(self._path):
            return ""
        return lacking(
            f"{self.config.store.name} has those of {section.heading.path} by site, which policybridge-run and a "
            "plugin apply"
        )

    @property
    def _path(self) -> str:
        source = source_of(self.compiler.arguments)
        return path_in_store(Path(self.surroundings.cwd or ".") / source, self.config.store) if source else ""

    @cached_property
    def _llvm(self) -> int:
        return llvm_version(self.compiler.start)

    def _section(self, store: Store, by: By) -> Section | None:
        return store.section_for(self._heading(by))

    def _heading(self, by: By) -> Heading:
        return Heading(self._llvm, self.compiler.level, by, None, self._path)

    def _interactive(self, section: Section) -> Report:
        answers = StoreAnswers(section.answers)
        config = HostConfig(
            _NAME,
            _NAME,
            fallback=self.config.fallback,
            growth_limit=self.config.growth_limit,
            retry_after=0,
            llvm=self._llvm,
        )
        report = run_compiler(
            self.compiler.words, config, self.surroundings, connection=answers, interrupts=self.interrupts
        )
        applied, of = len(answers.applied), len(section.answers)
        counted = Applied(str(self.config.store), self._path, False, applied, of - applied)
        unexpected = applied != of and (applied or section.heading.names(self._path))
        note = f"{self.config.store.name}: {applied} of {of} decisions applied to {self._path}" if unexpected else ""
        own = replace(report.statistics, policy=None, sessions=[])
        return replace(report, statistics=own, store=counted, note=note)


class StoreAnswers(Answers):
    """Answers with decisions by sequence; with LLVM's own for every other call.

    Args:
        decisions: whether to inline, by the decision's name.

    Attributes:
        applied: the names of the decisions that were asked for.

    """

    def __init__(self, decisions: Mapping[str, bool]) -> None:
        self.applied: set[str] = set()
        self._decisions = decisions

    def begin(self, signature: Signature, options: SessionOptions) -> None:
        """Begin a module: the occurrences of each key count from 0.

        Raises:
            InvalidError: LLVM's own decision is not among the features.

        """
        if _DEFAULT not in signature.features.by_name:
            raise InvalidError(
                f"the compiler sends no feature {_DEFAULT}, the answer to calls without a decision in the store"
            )
        super().begin(signature, options)
        self._keys = FeaturesKeys(signature)

    def evaluate(self, observation: Values) -> Values:
        """Return the decision about the next call, or LLVM's own."""
        key = self._keys.next(observation.tobytes())
        inline = self._decisions.get(key)
        if inline is None:
            inline = bool(observation[_DEFAULT].any())
        else:
            self.applied.add(key)
        return self.advice(inline)

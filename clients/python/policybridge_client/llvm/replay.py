"""Replays a recorded compilation without a server: the recorded advice answers the compiler's observations.

Each observation is compared with the recorded one, and the first difference ends the compiler.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from policybridge_client.answers import Answers
from policybridge_client.llvm.compilers import CompilerCommand, source_of
from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.plugin_host import run_with_plugin
from policybridge_client.llvm.record import Compilation, object_digest, output_file, output_index
from policybridge_client.llvm.statistics import Report
from policybridge_client.llvm.surroundings import Surroundings
from policybridge_core.errors import InvalidError, PolicyFailedError, PreconditionError
from policybridge_serdes import SessionOptions, Signature, Values


@dataclass(frozen=True)
class RecordedDecision:
    """A recorded decision: the observation as the policy saw it, and the policy's advice."""

    signature: Signature
    context: str
    observation: bytes
    advice: bytes


@dataclass(frozen=True)
class RecordedCompilation:
    """A recorded compilation.

    Attributes:
        compilation: how the compiler was started.
        decisions: all decisions, in order.
        object: the digest of the object file; ``None`` if it is not known.
        by_plugin: whether the plugin ``policybridge-inliner`` asked, which the command loads.

    """

    compilation: Compilation
    decisions: Sequence[RecordedDecision]
    object: float | None
    by_plugin: bool = False

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of its decisions, each by the name of the advice."""
        return list(dict.fromkeys(decision.signature.advice.name for decision in self.decisions))


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    Attributes:
        decisions: the number of decisions whose observations were the same as recorded.
        difference: a description of the first difference; ``None`` if there is none.
        step: the number of the first decision that differs, counted from 1; ``None`` if the difference is elsewhere.
        object: whether the object file was compared and is the same.

    """

    decisions: int
    difference: str | None = None
    step: int | None = None
    object: bool = False

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return self.difference is None


def replay(recorded: RecordedCompilation, surroundings: Surroundings | None = None) -> Replayed:
    """Compile again as recorded, and compare the observations and the object.

    Args:
        recorded: the recorded compilation.
        surroundings: the compiler's environment and streams, and its folder if it is not the recorded one.

    Raises:
        InvalidError: the command starts no known compiler, or the record has no valid growth limit.
        PreconditionError: the command compiles several sources, and cannot be replayed.
        OSError: the compiler cannot be started.

    """
    compilation = recorded.compilation
    compiler = CompilerCommand.of(compilation.command)
    # The plugin names the context of each decision.
    answers = _RecordedAnswers(recorded.decisions, "" if recorded.by_plugin else source_of(compiler.arguments))
    given = surroundings or Surroundings()
    around = given if given.cwd is not None else replace(given, cwd=compilation.cwd)
    with tempfile.TemporaryDirectory(prefix="policybridge-replay-") as folder:
        made = Path(folder) / "object"
        command = _writing_to(made, compiler)
        if recorded.by_plugin:
            report = run_with_plugin(CompilerCommand.of(command), recorded.kinds, answers, around)
        else:
            report = run_compiler(command, _config(compilation), around, connection=answers)
        digest = object_digest(made)
    # The plugin writes a header for each kind of decision.
    if report.statistics.headers > 1 and not recorded.by_plugin:
        raise PreconditionError("the command compiles several sources, and each would ask from the start")
    return _difference(report, answers.compared, len(recorded.decisions)) or _compared(recorded, digest)


def _config(compilation: Compilation) -> HostConfig:
    limit = _growth_limit(compilation)
    return HostConfig("replay", "replay", task=compilation.task, fallback="error", growth_limit=limit)


def _growth_limit(compilation: Compilation) -> float:
    try:
        return float(compilation.growth_limit)
    except ValueError as error:
        raise InvalidError(f"the recorded growth limit is no number: {error}") from error


def _writing_to(made: Path, compiler: CompilerCommand) -> list[str]:
    """Return the command with another object file: the recorded one may be in use."""
    arguments = list(compiler.arguments)
    index = output_index(arguments)
    if index is not None:
        arguments[index] = str(made)
    elif output_file(compiler.words):
        arguments = ["-o", str(made), *arguments]
    return [*compiler.start, *arguments]


def _difference(report: Report, compared: int, recorded: int) -> Replayed | None:
    if isinstance(report.error, PolicyFailedError):
        return Replayed(compared - 1, f"the recorded advice is not legal for LLVM: {report.error}", compared)
    if report.error is not None:
        return Replayed(compared, str(report.error), compared + 1)
    if report.status:
        return Replayed(compared, f"the compiler ended with status {report.status}")
    if compared < recorded:
        fewer = f"the compiler asked for {compared} of the {recorded} recorded decisions"
        return Replayed(compared, fewer, compared + 1)
    return None


def _compared(recorded: RecordedCompilation, digest: float | None) -> Replayed:
    decisions = len(recorded.decisions)
    if recorded.object is not None and digest != recorded.object:
        return Replayed(decisions, "all decisions are the same, but the object differs")
    return Replayed(decisions, object=recorded.object is not None)


class _RecordedAnswers(Answers):
    """Answers with the recorded advice as long as the observations are the recorded ones.

    Args:
        decisions: the recorded decisions.
        source: the context of decisions for which LLVM gives none.

    """

    def __init__(self, decisions: Sequence[RecordedDecision], source: str) -> None:
        self.compared = 0
        self._recorded = decisions
        self._source = source

    def begin(self, signature: Signature, options: SessionOptions) -> None:
        self._signature = signature
        self._context = options.context

    def context(self, name: str) -> None:
        self._context = name

    def evaluate(self, observation: Values) -> Values:
        """Return the recorded advice.

        Raises:
            PreconditionError: the observation differs from the recorded one.

        """
        if self.compared == len(self._recorded):
            raise PreconditionError(f"the compiler asks for more than the {self.compared} recorded decisions")
        recorded = self._recorded[self.compared]
        if recorded.signature != self._signature:
            raise PreconditionError("the compiler's features differ from the recorded ones")
        if self._context not in (self._source, recorded.context):
            told = f"the compiler asks in the context {self._context!r}; the recorded one is {recorded.context!r}"
            raise PreconditionError(told)
        if recorded.observation != observation.tobytes():
            raise PreconditionError(f"the observation differs in {_different(recorded, observation)}")
        self.compared += 1
        advice: Values = np.ndarray(1, self._signature.advice_layout.dtype, recorded.advice)
        return advice


def _different(recorded: RecordedDecision, observation: Values) -> str:
    before = np.ndarray(1, observation.dtype, recorded.observation)
    names = observation.dtype.names or ()
    return ", ".join(name for name in names if before[name].tobytes() != observation[name].tobytes())

"""Compiles cases by a policy, and reads their observations and decisions from the ledger."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_client import Outcome, connect
from policybridge_core.errors import InvalidError, UnavailableError
from policybridge_serdes import PolicyVersion, Values
from policybridge_server.ledger import LedgerReader, Query
from policybridge_server.ledger.trajectory import DecisionBatch, joined
from policybridge_train.compiling.job import SharedModule, retried
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult
from policybridge_train.farms.contract import Farm, Machine, Serving
from policybridge_train.processes.threads import for_each
from policybridge_train.tasks.raising import run_case, told_by
from policybridge_train.tasks.recipe import CaseJob, OfModules, TaskRecipe, Work
from policybridge_train.tasks.task import Asking, Case, Task, names_in_hex

_R = TypeVar("_R")


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A compilation, with its decisions in order.

    Attributes:
        case: of the task.
        result: of the compile. If it failed, there are no decisions.
        policy: the exact version that decided; ``None`` if the compiler asked nothing.
        observations: records of all features that the compiler sent, shape [n].
        advice: shape [n].
        log_probabilities: of the advice, shape [n]; NaN if the session did not explore.
        units: the unit of each decision.

    """

    case: Case
    result: CompileResult
    policy: PolicyVersion | None = None
    observations: Values = field(default_factory=lambda: np.zeros(0, np.dtype([])))
    advice: npt.NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    log_probabilities: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    units: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.advice)

    def columns(self, names: Sequence[str]) -> npt.NDArray[np.float32]:
        """Give features of one element as the columns of a matrix, shape [n, names]; one that was not sent is NaN."""
        known = self.observations.dtype.names or ()
        empty = np.full(len(self), np.nan, np.float32)
        found = [self.observations[name].reshape(-1).astype(np.float32) if name in known else empty for name in names]
        return np.stack(found, axis=1)


@dataclass(frozen=True)
class Collecting:
    """Compiles a case, and again if a server died or a compiler was killed; reads the decisions from the ledger."""

    asking: Asking

    def __call__(self, machine: Machine, task: Task, case: Case) -> Trajectory:
        """Compile, and read the decisions from the ledger of the machine's server."""

        def once(again: bool) -> Trajectory:
            serving = machine.serving(self.asking.server, self.asking.policy, again=again)
            done = _checked(run_case(task, case, replace(self.asking, server=serving.address)))
            return _read(task, case, done, serving)

        try:
            return retried(once, machine.running, asks=True, result_of=lambda made: made.result)
        except UnavailableError as error:
            return Trajectory(case, CompileResult.failed(str(error)))


def _read(task: Task, case: Case, done: CompileResult, serving: Serving) -> Trajectory:
    if not done.ok or serving.ledger is None or not done.sessions:
        return Trajectory(case, done)
    _acknowledge(done, serving.address, serving.ledger)
    return read_back(task, case, done, serving.ledger)


@dataclass(frozen=True)
class Collector:
    """Compiles cases by policies, several at a time. Usable from any thread.

    Attributes:
        recipe: of the task that is compiled.
        farm: where it is compiled.

    """

    recipe: TaskRecipe
    farm: Farm

    def collect(self, cases: Sequence[Case], asking: Asking) -> Iterator[Trajectory]:
        """Compile cases, and give the trajectories in the order of the cases."""
        return self.map(Collecting(asking), cases)

    def map(self, work: Work[_R], cases: Iterable[Case]) -> Iterator[_R]:
        """Do the work with each case, several at a time; give the results in the order of the cases."""
        return self.each(lambda case: self.one(case, work), cases)

    def each(self, job: Callable[[Case], _R], cases: Iterable[Case]) -> Iterator[_R]:
        """Call ``job``, which calls `one`, for each case, several at a time; if a call raises, all compilers are ended.

        Raises:
            Exception: of the first call that raised.

        """
        yield from for_each(job, cases, self.farm.slots, self.farm.running)

    def one(self, case: Case, work: Work[_R]) -> _R:
        """Do the work with one case."""
        task = self.recipe.made
        modules: Sequence[Module] = (task.modules_of(case) if isinstance(task, OfModules) else None) or ()
        shared = [SharedModule.of(module, self.farm) for module in modules]
        return self.farm.do(CaseJob(self.recipe, case, shared, work))


def _checked(done: CompileResult) -> CompileResult:
    """Give a task's costs and totals as floats; a number that is not finite makes the result a failure."""
    for kind, numbers in (("cost of", done.costs), ("total", done.totals)):
        for name, number in numbers.items():
            if not (isinstance(number, Real) and isfinite(number)):
                return CompileResult.failed(
                    f"the task says that the {kind} {name!r} is {number!r}, which is no finite number"
                )
    # Tasks count with numpy as well, whose numbers are no floats in a record.
    costs, totals = ({name: float(number) for name, number in each.items()} for each in (done.costs, done.totals))
    return msgspec.structs.replace(done, costs=costs, totals=totals)


def _acknowledge(done: CompileResult, server: str, ledger: Path) -> None:
    """See to it that the ledger has all decisions of sessions whose task told the server no outcome.

    Those of a session that just ends are written within a second, and a part of them may be there before; an outcome is
    acknowledged when all before it are.

    Raises:
        NotFoundError: the server has no such session.

    """
    with LedgerReader(ledger) as reader:
        known = {each.id for name in done.sessions for each in reader.sessions(Query(session=name)) if each.outcome}
    waiting = [name for name in done.sessions if name not in known]
    if waiting:
        with connect(server) as connection:
            for name in waiting:
                connection.report_outcome(name, Outcome(status="ok"))


def read_back(task: Task, case: Case, done: CompileResult, ledger: Path) -> Trajectory:
    """Read the decisions of a compilation from the ledger: those of the task's kind.

    Raises:
        NotFoundError: the ledger has none of its sessions.
        InvalidError: the task does not give a unit for each decision.

    """
    batches = _of_kind(_batches(done, ledger), task.advice.name)
    if not batches:
        return Trajectory(case, done)
    whole = joined(batches)
    with told_by(task.name, f"units of {case.name}"):
        units = task.units(whole.observations, whole.contexts)
    if len(units) != len(whole):
        raise InvalidError(
            f"the task {task.name} gives {len(units)} units for the {len(whole)} decisions of {case.name}"
        )
    return Trajectory(
        case, done, whole.sessions[0].policy, whole.observations, _advice(whole), whole.log_probabilities, units
    )


def read_choices(done: CompileResult, ledger: Path, kind: str) -> list[tuple[str, int]]:
    """Read a policy's decisions of a kind that is about functions: the function's key, and the advice.

    Raises:
        NotFoundError: the ledger has none of the compilation's sessions.

    """
    found: list[tuple[str, int]] = []
    for batch in _of_kind(_batches(done, ledger), kind):
        found += zip(names_in_hex(batch.observations, "function"), map(int, _advice(batch)), strict=True)
    return found


def _batches(done: CompileResult, ledger: Path) -> list[DecisionBatch]:
    with LedgerReader(ledger) as reader:
        return [batch for name in done.sessions for batch in reader.trajectory(reader.session(name)).batches]


def _of_kind(batches: Sequence[DecisionBatch], kind: str) -> list[DecisionBatch]:
    return [batch for batch in batches if batch.signature.advice.name == kind]


def _advice(batch: DecisionBatch) -> npt.NDArray[Any]:
    name = batch.signature.advice.name
    advice: npt.NDArray[Any] = batch.advices[name].reshape(len(batch))
    return advice


def site_keys(trajectory: Trajectory) -> list[str]:
    """Give the key of each decision's site, as stores have it; empty where the compiler did not tell sites."""
    if "site" not in (trajectory.observations.dtype.names or ()):
        return []
    return names_in_hex(trajectory.observations, "site")

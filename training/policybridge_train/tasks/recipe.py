"""Recipes from which another machine makes the same task, by name and options; and the job that compiles one case."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar, cast, runtime_checkable

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.job import SharedModule
from policybridge_train.compiling.module import Module
from policybridge_train.farms.contract import Machine
from policybridge_train.tasks.raising import told_by
from policybridge_train.tasks.task import TASKS, Case, Task

T = TypeVar("T")

_MEMBERS: Final = ("name", "features", "advice", "default", "cases", "run", "end", "units")
"""Of `Task`."""


@runtime_checkable
class OfModules(Protocol):
    """A task whose cases are modules. A farm sends the modules to the machine that compiles them."""

    def modules_of(self, case: Case) -> Sequence[Module] | None:
        """Give all modules that a case compiles; ``None`` if a case needs more than modules."""
        ...

    def know(self, module: Module) -> Case:
        """Register a module, so that its case can be run; give the case."""
        ...


def make_task(name: str, options: Mapping[str, str]) -> Task:
    """Make a task from its options and its name: one of `TASKS`, or the import string of a class.

    Raises:
        NotFoundError: there is no such task or class.
        InvalidError: the task does not take these options, or lacks a member of a task.

    """
    module, colon, attribute = name.partition(":")
    if colon:
        with told_by(name, "its import"):
            made = _imported(name, module, attribute)
    else:
        made = TASKS.load(name)
    try:
        signature(made).bind(**options)
    except TypeError as error:
        raise InvalidError(f"the task {name} does not take these options: {error}") from error
    with told_by(name, "its constructor"):
        task = cast("Task", made(**options))
    _check_members(name, task)
    return task


def _check_members(name: str, task: Task) -> None:
    missing = [member for member in _MEMBERS if not hasattr(task, member)]
    if missing:
        raise InvalidError(f"{name} is no task: it lacks {', '.join(missing)}")
    features = [spec.name for spec in task.features]
    if task.default and task.default not in features:
        raise InvalidError(f"the default of the task {name}, {task.default!r}, is none of its features, {features}")


def _imported(name: str, module: str, attribute: str) -> Any:
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise NotFoundError(f"there is no task {name}: {error}") from error


@dataclass(frozen=True)
class TaskRecipe:
    """Makes a task again on another machine; in this process it gives the task itself.

    Attributes:
        name: the task's name.
        options: the task's options, sorted.
        compiler: the version text of the task's compiler; empty if the task has no compiler.
        corpus: the path of the task's corpus; it is opened on the other machine if the cases need more than modules.
        made: the task in this process; ``None`` on another machine.

    """

    name: str
    options: tuple[tuple[str, str], ...]
    compiler: str = ""
    corpus: Path | None = None
    made: Task | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, task: Task, name: str, options: Mapping[str, str], corpus: Path | None) -> "TaskRecipe":
        """Give the recipe of a task that was made by `make_task`."""
        folder = corpus.resolve() if corpus is not None else None
        return cls(name, tuple(sorted(options.items())), _version(task), folder, task)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "made": None}

    def make(self, machine: Machine) -> Task:
        """Make the task.

        Raises:
            PreconditionError: the compiler of this machine has another version.
            PolicyBridgeError: the task cannot be made on this machine.

        """
        task = self.made if self.made is not None else self._again()
        machine.running.end_also(task.end)
        return task

    def _again(self) -> Task:
        task = make_task(self.name, dict(self.options))
        if _version(task) != self.compiler:
            raise PreconditionError(f"the compiler is {_version(task)!r} here, and {self.compiler!r} where the run is")
        if not isinstance(task, OfModules) or _needs_corpus(task):
            task.cases(self.corpus)
        return task


def _version(task: Task) -> str:
    compiler = getattr(task, "compiler", None)
    return compiler.version if isinstance(compiler, Compiler) else ""


def _needs_corpus(task: OfModules) -> bool:
    return task.modules_of(Case("", "")) is None


Work = Callable[[Machine, Task, Case], T]
"""Work on a case. It must be picklable, so that it can be sent to other machines: a top-level function or an object."""


@dataclass(frozen=True)
class CaseJob(Generic[T]):
    """A job that compiles a case of a task.

    Attributes:
        modules: the case's modules; empty if the task finds them in its corpus.
        work: called with the machine, the task and the case.

    """

    recipe: TaskRecipe
    case: Case
    modules: Sequence[SharedModule]
    work: Work[T]

    def run(self, machine: Machine) -> T:
        """Do the work with the task of the machine."""
        task = machine.tool(self.recipe)
        for each in self.modules:
            module = each.at(machine)
            if module is not each.module and isinstance(task, OfModules):
                task.know(module)
        return self.work(machine, task, self.case)

"""Begins a search with a policy's decisions: they are tried as a whole, and kept region by region."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

from policybridge_client.decisions import PassChoice
from policybridge_client.decisions.passes import ALTERNATIVES, checked_action
from policybridge_core.errors import PreconditionError
from policybridge_serdes import PolicyReference
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult
from policybridge_train.farms.contract import Farm, Machine
from policybridge_train.tasks.inline import InlineForSize
from policybridge_train.tasks.passes import PassesForSize
from policybridge_train.tasks.recipe import TaskRecipe
from policybridge_train.tasks.task import Asking, Case, Task
from policybridge_train.trajectories.server import TrainingServer
from policybridge_train.trajectories.trajectory import Collecting, Collector, Trajectory, read_choices, site_keys
from policybridge_train.tuning.flips import CallGraph, Decided, Flip, passes_of
from policybridge_train.tuning.search import Accepted, Search

Chosen = Sequence[tuple[str, int]]
"""The number of the alternative for a function's passes, by the function's key."""


@dataclass(frozen=True)
class _BothKinds:
    """Compiles a case by a policy, and reads its decisions about inlining and passes."""

    asking: Asking

    def __call__(self, machine: Machine, task: Task, case: Case) -> tuple[Trajectory, Chosen]:
        """Compile, and read both kinds from the ledger of the machine's server."""
        inlined = Collecting(self.asking)(machine, task, case)
        ledger = machine.serving(self.asking.server, self.asking.policy).ledger
        if not inlined.result.ok or ledger is None:
            return inlined, ()
        return inlined, read_choices(inlined.result, ledger, PassesForSize.advice.name)


class PolicyStart(AbstractContextManager["PolicyStart"]):
    """Gives the decisions of a policy, which a server of its own serves. Usable from any thread.

    Args:
        recipe: of the task that compiles modules.
        farm: where they are compiled.
        repository: the folder of the policy's folder.
        policy: ``NAME``, ``NAME@VERSION`` or ``NAME@ALIAS``.

    Raises:
        UnavailableError: the server does not start.

    """

    def __init__(self, task: InlineForSize, recipe: TaskRecipe, farm: Farm, repository: Path, policy: str) -> None:
        PolicyReference.parse(policy)
        self._task = task
        self._policy = policy
        self._roller = Collector(recipe, farm)
        self._held = ExitStack()
        folder = Path(self._held.enter_context(TemporaryDirectory(prefix="policybridge-tune-")))
        try:
            served = _followed(repository, policy, folder) if farm.host else repository
            server = self._held.enter_context(TrainingServer(folder, served, farm.host))
            farm.lead(server)
            self._asking = Asking(server.leader.address, policy)
        except BaseException:
            self._held.close()
            raise

    def of(self, module: Module, functions: Iterable[str]) -> Decided:
        """Compile a module by the policy; give its decisions that differ from LLVM's own.

        Args:
            module: to compile.
            functions: the names of those whose passes may be chosen.

        Raises:
            PreconditionError: it does not compile, or the policy gave no advice.

        """
        inlined, chosen = self._roller.one(self._task.know(module), _BothKinds(self._asking))
        if not inlined.result.ok:
            raise PreconditionError(f"{module.name}: by {self._policy}: {inlined.result.failure}")
        return Decided(dict(self._differing(inlined)), passes_of(list(_choices(chosen)), functions))

    def _differing(self, inlined: Trajectory) -> Iterator[tuple[str, bool]]:
        if len(inlined):
            own = inlined.columns([self._task.default])[:, 0] != 0
            decided = zip(site_keys(inlined), (inlined.advice != 0).tolist(), own.tolist(), strict=True)
            yield from ((key, inline) for key, inline, default in decided if inline != default)

    def __exit__(self, *_: object) -> None:
        self._held.close()


def _choices(chosen: Chosen) -> Iterator[PassChoice]:
    alternatives = tuple(ALTERNATIVES.values())
    for key, number in chosen:
        for words in alternatives[number] if 0 <= number < len(alternatives) else ():
            word, _, name = words.partition(" ")
            action = checked_action(word)
            if action is not None:
                yield PassChoice(key, action, name)


def _followed(repository: Path, policy: str, folder: Path) -> Path:
    """Copy the policy into a repository of its own: a following server gets no bundled policies."""
    name = PolicyReference.parse(policy).name
    if (repository / name).is_dir():
        copytree(repository / name, folder / "policies" / name)
        return folder / "policies"
    return repository


def take_start(search: Search, start: Decided, measured: CompileResult) -> None:
    """Go on from the decisions that a search starts with, but for regions that they have made larger."""
    graph = CallGraph(search.sites, search.sizes)
    for site in (site for sites in search.sites.values() for site in sites):
        inline = start.inlining.get(site.key, site.taken)
        if inline != site.taken:
            flip = Flip.of((site,), graph, inline=inline)
            search.accepted.append(Accepted(flip.turned, graph.names(flip.affected)))
    for function, choices in start.passes.items():
        search.accepted.append(Accepted(Decided(passes={function: choices}), [function] if function else []))
    search.take(start, measured)
    search.start = None

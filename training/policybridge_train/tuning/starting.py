"""Begins a search with a policy's decisions: they are tried as a whole, and kept region by region."""

from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

from policybridge_core.errors import PreconditionError
from policybridge_serdes import PolicyReference
from policybridge_train.compiling.decisions import Decided
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult
from policybridge_train.farms.contract import Farm
from policybridge_train.tasks.inline import InlineForSize
from policybridge_train.tasks.recipe import TaskRecipe
from policybridge_train.tasks.task import Asking
from policybridge_train.trajectories.server import TrainingServer
from policybridge_train.trajectories.trajectory import Collecting, Collector, site_keys
from policybridge_train.tuning.flips import CallGraph, Flip
from policybridge_train.tuning.search import Accepted, Search


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

    def of(self, module: Module) -> dict[str, bool]:
        """Compile a module by the policy; give its decisions that differ from LLVM's own, by site.

        Raises:
            PreconditionError: it does not compile, or the policy gave no advice.

        """
        trajectory = self._roller.one(self._task.know(module), Collecting(self._asking))
        if not trajectory.result.ok:
            raise PreconditionError(f"{module.name}: by {self._policy}: {trajectory.result.failure}")
        if not len(trajectory):
            return {}
        own = trajectory.columns([self._task.default])[:, 0] != 0
        decided = zip(site_keys(trajectory), (trajectory.advice != 0).tolist(), own.tolist(), strict=True)
        return {key: inline for key, inline, default in decided if inline != default}

    def __exit__(self, *_: object) -> None:
        self._held.close()


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

"""A task: an optimisation problem for which a policy can be trained. Users write their own.

A task has cases, compiles one with a compiler that asks a server, and gives the costs by unit. A unit is the part of a
program that a decision belongs to, and whose cost tells decisions apart: a function, a loop nest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from policybridge_core.plugins import Table
from policybridge_serdes import Exploration, TensorSpec, Values
from policybridge_train.compiling.policy import ByPolicy
from policybridge_train.compiling.result import CompileResult


@dataclass(frozen=True)
class Asking:
    """Whom a compiler asks, and how.

    Attributes:
        server: the server's address.
        policy: ``NAME``, ``NAME@VERSION`` or ``NAME@ALIAS``.
        exploration: how sessions depart from the best advice; ``None`` for not at all.
        labels: of the sessions, for people and for the ledger.

    """

    server: str
    policy: str
    exploration: Exploration | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def decider(self, task: str) -> ByPolicy:
        """Give the decider that asks so, for a task of the client."""
        return ByPolicy(self.policy, self.server, task, exploration=self.exploration, labels=self.labels, traced=True)


@dataclass(frozen=True)
class Case:
    """One compile's input: a module of a corpus, a shape of a matrix product, ….

    Attributes:
        name: tells it from the others of the task.
        project: whose it is. A project is trained on, validated on or held out as a whole.
        language: of its source; empty where that means nothing.

    """

    name: str
    project: str
    language: str = ""


class Task(Protocol):
    """An optimisation problem."""

    @property
    def name(self) -> str:
        """The name for people, and of the policy."""
        ...

    @property
    def features(self) -> Sequence[TensorSpec]:
        """The features of a decision."""
        ...

    @property
    def advice(self) -> TensorSpec:
        """The advice, which is a policy's answer."""
        ...

    @property
    def default(self) -> str:
        """The feature that is the compiler's own decision; empty if there is none."""
        ...

    def cases(self, corpus: Path | None) -> Sequence[Case]:
        """Give the cases; ``corpus`` is the user's path.

        Raises:
            InvalidError: the corpus is missing, or not one of this task.

        """
        ...

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Compile a case once, with a compiler that asks. Called from several threads.

        ``None`` is for the compiler's own decisions, and only given to tasks that have no ``default``.

        A compiler that fails, crashes, or gets no advice gives `CompileResult.failed`, and no exception.
        """
        ...

    def end(self) -> None:
        """End all compilers that run, from another thread: training was stopped."""
        ...

    def units(self, observations: Values, contexts: npt.NDArray[np.object_]) -> Sequence[str]:
        """Give the unit of each decision of one session, from its observations and contexts."""
        ...


def names_in_hex(observations: Values, feature: str) -> list[str]:
    """Give a feature that is a hash, such as ``caller`` or ``site`` of the plugin, as units and stores write it."""
    hashes: list[int] = observations[feature].reshape(-1).view(np.uint64).tolist()
    return [f"{one:016x}" for one in hashes]


TASKS: Table = Table(
    kind="task of training",
    group="policybridge.training_tasks",
    own={
        "inline": "policybridge_train.tasks.inline:InlineForSize",
        "inline-speed": "policybridge_train.tasks.inline_speed:InlineForSpeed",
        "evict": "policybridge_train.tasks.allocation:Eviction",
        "passes": "policybridge_train.tasks.passes:PassesForSize",
        "priority": "policybridge_train.tasks.allocation:Priority",
        "tile": "policybridge_train.tasks.tiling:Tiling",
    },
)

"""The processes of a run on all nodes of a cluster: started where a node is new, and again where they were lost."""

from collections.abc import Iterator, Mapping
from math import ceil
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from policybridge_train.farms.contract import FarmOptions, Leader
from policybridge_train.farms.ray_farm.actors import Compilers, NodeServer
from policybridge_train.farms.ray_farm.slots import SlotGroup, Slots

if TYPE_CHECKING:
    from ray.actor import ActorHandle

MOST_SLOTS: Final = 32
"""Of one process: it also reads the objects, which Python does on one core."""

_LOOKED: Final = 0.5
"""Seconds between looks at the cluster."""

_ENDED_WITHIN: Final = 10.0
_CONTROL: Final = "control"
"""Calls of this group do not wait for compilers."""


def cluster_nodes() -> list[dict[str, Any]]:
    """Give what Ray knows of the nodes of the cluster, also of those that are gone."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return nodes


def capacity(node: Mapping[str, Any], memory: int) -> int:
    """Give the number of compilers for which a node has cores and memory; ``memory`` is bytes of one."""
    resources = node["Resources"]
    return int(min(resources.get("CPU", 0), resources.get("memory", 0) // memory)) if node["Alive"] else 0


class Nodes:
    """Keeps compilers, and a policy server, on every node with room for compilers.

    Args:
        run: the run's id.
        options: how many compilers, and how much memory for each.
        slots: where slots are added and taken out.

    """

    def __init__(self, run: str, options: FarmOptions, slots: Slots) -> None:
        self._run = run
        self._jobs = options.jobs
        self._memory = options.memory << 20
        self._slots = slots
        self._lock = Lock()
        self._leader: Leader | None = None
        self._groups: dict[ray.ObjectRef[bool], SlotGroup] = {}
        """All that were started, by the reference that tells when they are ready."""
        self._waiting: list[ray.ObjectRef[bool]] = []
        self._servers: dict[str, ActorHandle[Any]] = {}
        self._over = Event()
        self._watcher: Thread | None = None

    def lead(self, leader: Leader) -> None:
        """Have a server that follows a leader on each node from now on."""
        self._leader = leader

    def begin(self) -> None:
        """Start the actors on the nodes, and watch the nodes from now on. Later calls do nothing."""
        with self._lock:
            if self._watcher is None and not self._over.is_set():
                self._watcher = Thread(target=self._watch, name="policybridge-ray", daemon=True)
                self._watcher.start()

    def lost(self, group: SlotGroup) -> None:
        """Give up a process that does not answer any more."""
        if self._slots.drop(group):
            # It may still run where its node was cut off for a moment.
            ray.kill(group.compilers)
            with self._lock:
                self._groups = {ready: each for ready, each in self._groups.items() if each is not group}

    def _watch(self) -> None:
        while not self._over.wait(_LOOKED if self._groups else 0):
            try:
                self._look()
            except Exception as error:
                # Those who wait for a slot are told of any.
                self._slots.fail(error)
                return

    def _look(self) -> None:
        nodes = {node["NodeID"]: node for node in cluster_nodes() if capacity(node, self._memory)}
        for group in [each for each in self._groups.values() if each.node not in nodes]:
            self.lost(group)
        with self._lock:
            self._servers = {node: server for node, server in self._servers.items() if node in nodes}
            if self._over.is_set():
                return
            for name, node in nodes.items():
                self._fill(name, capacity(node, self._memory), len(nodes))
        self._settle()

    def _fill(self, node: str, room: int, nodes: int) -> None:
        """Start as many processes on a node as it lacks."""
        taken = [group for group in self._groups.values() if group.node == node]
        missing = room - sum(group.slots for group in taken)
        if self._jobs is not None:
            left = self._jobs - sum(group.slots for group in self._groups.values())
            missing = min(missing, left, ceil(self._jobs / nodes))
        for slots in _parts(missing):
            self._start(node, slots)

    def _start(self, node: str, slots: int) -> None:
        here = NodeAffinitySchedulingStrategy(node, soft=False)
        if self._leader is not None and node not in self._servers:
            always = {"max_restarts": -1, "max_task_retries": -1}
            made = _class(NodeServer, scheduling_strategy=here, num_cpus=0, max_concurrency=64, **always)
            self._servers[node] = made.remote(self._run, self._leader)
        wants = {"num_cpus": slots, "memory": slots * self._memory, "max_concurrency": slots}
        made = _class(Compilers, scheduling_strategy=here, concurrency_groups={_CONTROL: 1}, **wants)
        compilers = made.remote(self._run, self._servers.get(node))
        ready: ray.ObjectRef[bool] = compilers.ready.remote()
        self._groups[ready] = SlotGroup(node, slots, compilers)
        self._waiting.append(ready)

    def _settle(self) -> None:
        """Add the slots of processes that have become ready."""
        waiting: list[ray.ObjectRef[bool]] = [ready for ready in self._waiting if ready in self._groups]
        if not waiting:
            return
        done, self._waiting = ray.wait([*waiting], num_returns=len(waiting), timeout=0)
        for ready in done:
            try:
                ray.get(ready)
            except (ray.exceptions.RayActorError, ray.exceptions.ActorUnschedulableError) as error:
                # The latter if the node has gone since the look.
                with self._lock:
                    self._groups.pop(ready, None)
                self._slots.died(str(error))
            else:
                self._slots.add(self._groups[ready])

    def end(self) -> None:
        """End all compilers and servers; it may be called again."""
        self._over.set()
        with self._lock:
            groups, servers = list(self._groups.values()), list(self._servers.values())
            self._groups, self._servers = {}, {}
        ends: list[Any] = [group.compilers.end.options(concurrency_group=_CONTROL).remote() for group in groups]
        ends += [server.close.remote() for server in servers]
        if groups or servers:
            ray.wait(ends, num_returns=len(ends), timeout=_ENDED_WITHIN)
        for actor in [*(group.compilers for group in groups), *servers]:
            ray.kill(actor)
        # A look after ray.shutdown would start Ray anew, by its auto_init_hook.
        if self._watcher is not None:
            self._watcher.join(_ENDED_WITHIN)


def _class(kind: type, **options: Any) -> Any:
    """Give a class of actors, to which Ray's own types do not do justice."""
    return ray.remote(**options)(kind)


def _parts(slots: int) -> Iterator[int]:
    """Split slots among as few processes as can have them, about evenly."""
    left = slots
    for processes in range(ceil(slots / MOST_SLOTS), 0, -1):
        yield (part := ceil(left / processes))
        left -= part

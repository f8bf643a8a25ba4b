"""A farm whose compilers run on the nodes of a Ray cluster.

Each node has a few processes that run many compilers each, and a policy server that follows the run's; compilers ask it
by its Unix socket. Modules are in Ray's object store. This process hands jobs to free slots, and takes their results.
"""

import hashlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

import ray
from ray.autoscaler.sdk import request_resources

from policybridge_core.errors import InvalidError, UnavailableError
from policybridge_train.farms.contract import FarmOptions, Job, Leading, Shared
from policybridge_train.farms.local import Held
from policybridge_train.farms.ray_farm.machine import MachineError
from policybridge_train.farms.ray_farm.nodes import Nodes, capacity, cluster_nodes
from policybridge_train.farms.ray_farm.sharing import StoredFile, StoredValue
from policybridge_train.farms.ray_farm.slots import Slots
from policybridge_train.processes.process import Running

_TRIES: Final = 8
_PATIENCE: Final = 300.0
"""Seconds to wait for a node with room."""

T = TypeVar("T")


class RayFarm:
    """See `Farm`.

    Args:
        options: the address is that of the cluster, ``HOST:PORT``; ``auto`` for the one that this machine is a node of;
            ``local`` for one that is started here, and ends with the farm.

    Raises:
        InvalidError: the address is none.
        UnavailableError: there is no cluster there, or one of another version of Ray or Python.

    """

    def __init__(self, options: FarmOptions) -> None:
        if not options.address or options.address.startswith("ray://"):
            raise InvalidError(
                f"{options.address or 'nothing'!r} is no address of a Ray cluster for us: give HOST:PORT, auto or "
                "local; start the command on a node (ray job submit does), whose server the others follow"
            )
        self._owned = not ray.is_initialized()
        if self._owned:
            _connect(options)
        self.host: str | None = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        memory = options.memory << 20
        self.slots = options.jobs or max(1, sum(capacity(node, memory) for node in cluster_nodes()))
        self.running = Running()
        self._slots = Slots(_PATIENCE, f"1 CPU and {options.memory} MiB")
        self._nodes = Nodes(uuid4().hex, options, self._slots)
        self._lock = threading.Lock()
        self._files: dict[Path, Shared[Path]] = {}
        self._asks = options.jobs is not None and options.address != "local"
        if self._asks:
            request_resources(num_cpus=self.slots)
        self.running.end_also(self._end)

    def lead(self, leading: Leading) -> None:
        """Have servers that follow this one.

        Raises:
            InvalidError: servers of other machines cannot follow it.

        """
        leader = leading.leader
        if not leader.follow:
            raise InvalidError(f"servers of other machines cannot follow {leader.address}: give grpc[s]:HOST:PORT")
        self._nodes.lead(leader)

    def share(self, value: T) -> Shared[T]:
        """Put a value into the object store."""
        return StoredValue(ray.put(value))

    def share_file(self, path: Path) -> Shared[Path]:
        """Put a file into the object store, once. One that cannot be read is missing where it is wanted, too."""
        with self._lock:
            if path not in self._files:
                self._files[path] = _stored(path)
            return self._files[path]

    def do(self, job: Job[T]) -> T:
        """Run a job on a free slot; on another one, where that was lost meanwhile."""
        self._nodes.begin()
        why = ""
        for _ in range(_TRIES):
            group = self._slots.take()
            try:
                answer: Any = ray.get(group.compilers.do.remote(job))
            except ray.exceptions.RayTaskError:
                self._slots.give(group)
                raise
            except ray.exceptions.RayError as error:
                why = str(error).partition("\n")[0]
                self._nodes.lost(group)
                continue
            self._slots.give(group)
            return self._given(answer)
        raise UnavailableError(f"{_TRIES} processes were lost while they ran a job, the last one so: {why}")

    def _given(self, answer: Any) -> Any:
        if isinstance(answer.error, MachineError) and not self.running.over:
            # The next job would fail there, too.
            self._slots.fail(answer.error)
            self.running.end()
        return answer.given()

    def _end(self) -> None:
        self._slots.end()
        self._nodes.end()

    def __enter__(self) -> "RayFarm":
        return self

    def __exit__(self, *_: object) -> None:
        self.running.end()
        if self._asks:
            # The last request counts: the cluster may release nodes now.
            request_resources(num_cpus=0)
        if self._owned:
            ray.shutdown()


def _stored(path: Path) -> Shared[Path]:
    try:
        content = path.read_bytes()
    except OSError:
        return Held(path)
    return StoredFile(path.name, hashlib.sha256(content).hexdigest(), StoredValue(ray.put(content)))


def _connect(options: FarmOptions) -> None:
    asked: dict[str, Any] = {"address": options.address, "log_to_driver": False, "logging_level": "error"}
    if options.address == "local":
        asked |= {"include_dashboard": False, "num_cpus": options.jobs or os.cpu_count()}
    try:
        with _own_signals():
            ray.init(**asked)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UnavailableError(
            f"there is no Ray cluster at {options.address} that takes us: {error}; one that was started with a "
            "token, as ray start says, needs RAY_AUTH_MODE=token and the token here, too"
        ) from error


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our handler of SIGTERM, which Ray replaces by its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

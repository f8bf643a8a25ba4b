"""A Ray cluster on this machine, for measurements and tests: nodes join it, and are killed.

Ray forks the process that starts a node. It is a process of its own here, because the process of a test or a
measurement has the threads of gRPC and JAX, which do not survive a fork.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.cluster_utils import Cluster

from policybridge_core.errors import PolicyFailedError

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


class RayCluster:
    """A cluster of one node at first; `address` is HOST:PORT of its head."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = self._answer()

    def add_node(self) -> None:
        """Add a node of one CPU, and wait until it has joined."""
        self._do("add")

    def kill_added_node(self) -> None:
        """End all processes of the node that was added last by SIGKILL."""
        self._do("kill")

    def _do(self, word: str) -> None:
        print(word, file=self._process.stdin, flush=True)
        self._answer()

    def _answer(self) -> str:
        prefix = "cluster: "
        for line in self._process.stdout or ():
            if line.startswith(prefix):
                return line.removeprefix(prefix).rstrip()
        raise PolicyFailedError("the process of the Ray cluster ended")


@contextmanager
def started_cluster() -> Iterator[RayCluster]:
    """Start a cluster, which ends with the body.

    Raises:
        PolicyFailedError: it does not start.

    """
    # Processes of the cluster find our packages as we do.
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": ":".join(filter(None, sys.path))}
    words = [sys.executable, __file__]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, env=environment, text=True) as process:
        yield RayCluster(process)


def _serve() -> None:
    cluster, nodes = Cluster(initialize_head=True, head_node_args=NODE), []
    print("cluster:", cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "add":
            nodes.append(cluster.add_node(**NODE))
        else:
            cluster.remove_node(nodes.pop(), allow_graceful=False)
        print("cluster:", line.strip(), flush=True)
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    _serve()

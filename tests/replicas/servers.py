"""The leader and its replicas: started, killed and started again, always at the same sockets."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from policybridge_bench.processes import wait_ready
from tests.replicas.asking import POLICY


class Server:
    """One server.

    Args:
        name: of its folder.
        folder: holds the folders of all.
        arguments: of ``policybridge serve``, beside its sockets.

    Attributes:
        grpc: its address.
        socket: its other address.

    """

    def __init__(self, name: str, folder: Path, *arguments: object) -> None:
        self.name = name
        self._folder = folder / name
        self._folder.mkdir()
        self.grpc, self.socket = (f"{kind}{self._folder}/{kind[0]}" for kind in ("grpc:unix:", "socket:"))
        listen = ["--grpc", self.grpc.removeprefix("grpc:"), "--socket", self.socket.removeprefix("socket:")]
        command = [sys.executable, "-m", "policybridge_client.cli", "serve", *listen, "--cache", self._folder / "cache"]
        self._command = [str(word) for word in [*command, "--grace", 0, *arguments]]

    def start(self) -> None:
        """Start it, and wait until it serves."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log)
        wait_ready(self._process, self._folder / "log")

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        self._process.wait()


def write_numbered(repository: Path) -> None:
    """Write the policy; its version 1 adds 1 to its input, and other weights make its later versions."""
    folder = repository / POLICY / "1"
    folder.mkdir(parents=True)
    own = numpy_helper.from_array(np.array([[1]], np.int64), "own")
    x, advice = (helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", 1]) for name in ("x", "advice"))
    graph = helper.make_graph([helper.make_node("Add", ["x", "own"], ["advice"])], POLICY, [x], [advice], [own])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    (repository / POLICY / "policy.toml").write_text('backend = "onnx"\n')


def leader(folder: Path) -> Server:
    """Give a leader with the policy."""
    write_numbered(folder / "policies")
    return Server("leader", folder, "--repository", folder / "policies", "--allow-publish")


def replicas(folder: Path, leading: Server, count: int) -> list[Server]:
    """Give the replicas of a leader."""
    return [Server(f"replica{number}", folder, "--follow", leading.grpc) for number in range(1, count + 1)]

"""Publish versions whose advice is their own number.

A version's model is the measured network beside a constant, the number; its advice is that number. So every decision
says which artifact made it, whatever version the session names.
"""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from policybridge_bench.network import FEATURES, make_network
from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_demo.export.policy import pack_toml, policy_folder
from tests.peers.clients import POLICY, Version


def write_numbered(folder: Path, number: int) -> Path:
    """Write the files of the version that answers ``number``."""
    model = make_network(packed=True)
    graph, (output,) = model.graph, model.graph.output
    inner = output.name
    graph.node.append(helper.make_node("Mul", [inner, "zero"], ["nothing"]))
    graph.node.append(helper.make_node("Add", ["nothing", "number"], ["numbered"]))
    graph.initializer.append(numpy_helper.from_array(np.array([[0]], np.int64), "zero"))
    graph.initializer.append(numpy_helper.from_array(np.array([[number]], np.int64), "number"))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("numbered", TensorProto.INT64, ["batch", 1]))
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    return folder


def write_first(repository: Path) -> None:
    """Make the policy with its version 1."""
    write_numbered(policy_folder(repository, POLICY, "onnx", pack_toml(FEATURES)), 1)


class Publisher:
    """Publishes one version after the other.

    Attributes:
        made: the number that each version must answer, by version and digest.
        refused: number of corrupt artifacts that the server refused.
        seconds: of each call that published a version.

    """

    def __init__(self, address: str, scratch: Path) -> None:
        self._client = RepositoryClient(address)
        self._scratch = scratch
        (first,) = self._client.show(POLICY).versions
        self.made = {(first.version, first.digest): 1}
        self.refused = 0
        self.seconds: list[float] = []

    def publish(self, number: int, *, corrupt: bool) -> None:
        """Make and publish the version that answers ``number``; a corrupt one must be refused."""
        self.send(write_numbered(self._scratch / str(number), number), number, corrupt=corrupt)

    def send(self, files: Path, number: int, *, corrupt: bool) -> None:
        """Publish the version in the folder ``files``, which is removed then."""
        if corrupt:
            (files / "model.onnx").write_bytes((files / "model.onnx").read_bytes()[: -1000 - number])
        started = time.perf_counter()
        try:
            version = self._client.publish(POLICY, files)
        except PreconditionError:
            self.refused += 1
        else:
            self.seconds.append(time.perf_counter() - started)
            self.made[version.version, version.digest] = number
        shutil.rmtree(files)

    def close(self) -> None:
        """Close the channel."""
        self._client.close()


def check_answers(seen: Mapping[Version, set[int]], publisher: Publisher) -> None:
    """Fail if a version answered another number than that of its artifact.

    Raises:
        PolicyFailedError: one did.

    """
    for version, numbers in seen.items():
        if numbers != {publisher.made[version]}:
            raise PolicyFailedError(f"version {version} answered {numbers}, not {publisher.made[version]}")

"""Versions whose advice tells who made it: the observation plus a number of the version's own."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper

from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, Connection
from policybridge_client.policies import RepositoryClient, Rollout
from policybridge_core.digest import digest
from policybridge_serdes import ElementType, PolicyReference, PolicyVersion, SessionOptions, Signature, TensorSpec, pack
from policybridge_server.repository.config import PolicyConfig
from policybridge_server.repository.identity import version_digest
from policybridge_server.repository.toml import parse_toml
from tests.conftest import RunningServer
from tests.onnx_models import make_model

SIGNATURE = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("advice", ElementType.INT64))
TOML = 'backend = "onnx"\n'


def adder(number: int, inputs: Sequence[str] = ("x",), kind: int = TensorProto.INT64) -> onnx.ModelProto:
    """Make a model that adds ``number`` to the sum of its inputs."""
    nodes, total = [], "own"
    for index, name in enumerate(inputs):
        result = "advice" if index == len(inputs) - 1 else f"sum{index}"
        nodes.append(helper.make_node("Add", [total, name], [result]))
        total = result
    dtype = np.float32 if kind == TensorProto.FLOAT else np.int64
    used = {name: (kind, ["batch", 1]) for name in inputs}
    return make_model(nodes, used, {"advice": (kind, ["batch", 1])}, {"own": np.array([[number]], dtype)})  # type: ignore[arg-type]


def write_adder(folder: Path, number: int, inputs: Sequence[str] = ("x",), kind: int = TensorProto.INT64) -> Path:
    """Write the files of a version into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(adder(number, inputs, kind), folder / "model.onnx")
    return folder


def write_policy(repository: Path, name: str = "adder", number: int = 100) -> Path:
    """Add a policy with the version 1, and give its folder."""
    write_adder(repository / name / "1", number)
    (repository / name / "policy.toml").write_text(TOML)
    return repository / name


def identity(folder: Path, toml: str = TOML) -> str:
    """Give the digest that a version with these files has under this ``policy.toml``."""
    return version_digest(digest(folder), parse_toml(toml.encode(), "policy.toml", PolicyConfig))


def ask(session: ClientSession, value: int = 7) -> int:
    """Ask once; give the number that the version added."""
    return int(session.evaluate(pack(SIGNATURE.features, {"x": value}))["advice"].item()) - value


@dataclass
class Client:
    """A server as its compilers and its publishers see it."""

    repository: RepositoryClient
    connection: Connection

    def open(self, policy: str = "adder") -> ClientSession:
        return self.connection.open(PolicyReference.parse(policy), SIGNATURE, SessionOptions())

    def ask(self, policy: str = "adder") -> tuple[PolicyVersion, int]:
        """Open a session, ask once, close it; give who answered, and its number."""
        session = self.open(policy)
        try:
            return session.policy, ask(session)
        finally:
            session.close()


@contextmanager
def client(server: RunningServer) -> Iterator[Client]:
    made = Client(RepositoryClient(server.grpc, timeout=120), connect(server.socket, timeout=120))
    try:
        yield made
    finally:
        made.repository.close()
        made.connection.close()


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return when ``condition`` holds; fail where it does not come to that."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def without_progress(rollout: Rollout | None) -> Rollout | None:
    """Give a roll-out as each server tells it: the progress is counted by each server itself, now and then."""
    return rollout and msgspec.structs.replace(rollout, progress="")

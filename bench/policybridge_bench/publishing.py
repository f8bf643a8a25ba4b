"""Sessions that never stop asking while versions are published, each of which tells its number in its advice.

A version's model is the measured network beside a constant, the number; its advice is that number. So every decision
says which artifact made it, whatever the session believes.
"""

import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from policybridge_bench.network import FEATURES, SIGNATURE, make_network, observations
from policybridge_client.connection import ClientSession, Connection, connect
from policybridge_client.policies import RepositoryClient
from policybridge_core.digest import digest
from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyReference, SessionOptions

POLICY = "numbered"
TOML = f'backend = "onnx"\n[settings.pack.observation]\nfeatures = {FEATURES}\n'
_SHORT = 8
"""Decisions of a session that is one of many; every fourth client stays on one for longer."""
_LONG = 400


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
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    return folder


def write_first(repository: Path) -> None:
    """Make the policy with its version 1."""
    write_numbered(repository / POLICY / "1", 1)
    (repository / POLICY / "policy.toml").write_text(TOML)


@dataclass
class Asker:
    """One client that opens, asks and closes until it is told to stop.

    Attributes:
        latencies: of its decisions, in µs, with the moments of their answers.
        seen: which number answered, by version and digest; more than one would be a mix-up.
        errors: whatever went wrong.

    """

    connection: Connection
    index: int
    latencies: list[tuple[float, float]] = field(default_factory=list)
    seen: dict[tuple[int, str], set[int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    sessions: int = 0

    def run(self, stop: threading.Event) -> None:
        """Ask; one decision after the other."""
        rows = [np.ndarray(1, SIGNATURE.features.dtype, row.tobytes()) for row in observations(64, self.index)]
        while not stop.is_set():
            try:
                self._session(rows, stop)
            except PolicyBridgeError as error:
                self.errors.append(repr(error))

    def _session(self, rows: Sequence[np.ndarray], stop: threading.Event) -> None:
        session = self.connection.open(PolicyReference(POLICY), SIGNATURE, SessionOptions())
        self.sessions += 1
        try:
            for step in range(_LONG if self.index % 4 == 0 else _SHORT):
                self._ask(session, rows[step % len(rows)])
                if stop.is_set():
                    return
        finally:
            session.close()

    def _ask(self, session: ClientSession, row: np.ndarray) -> None:
        started = time.perf_counter()
        advice = session.evaluate(row)
        ended = time.perf_counter()
        self.latencies.append((ended, (ended - started) * 1e6))
        answered = int(advice[SIGNATURE.advice.name].item())
        self.seen.setdefault((session.policy.version, session.policy.digest), set()).add(answered)


class Publisher:
    """Publishes one version after the other, and keeps who is who.

    Attributes:
        made: the number that each version must answer, by version and digest.
        refused: corrupt artifacts that were turned away.

    """

    def __init__(self, address: str, repository: Path, scratch: Path) -> None:
        self._client = RepositoryClient(address)
        self._scratch = scratch
        self.made = {(1, digest(repository / POLICY / "1")): 1}
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


def check(askers: Sequence[Asker], publisher: Publisher) -> None:
    """Fail where a session had an error, or an answer that its version's artifact does not give.

    Raises:
        SystemExit: one had.

    """
    errors = [error for asker in askers for error in asker.errors]
    if errors:
        raise SystemExit(f"{len(errors)} sessions failed; the first: {errors[0]}")
    for asker in askers:
        for version, numbers in asker.seen.items():
            if numbers != {publisher.made[version]}:
                raise SystemExit(f"version {version} answered {numbers}, not {publisher.made[version]}")


def start(address: str, count: int, stop: threading.Event) -> tuple[list[Asker], list[threading.Thread]]:
    """Start ``count`` clients on connections of their own."""
    askers = [Asker(connect(address, timeout=30), index) for index in range(count)]
    threads = [threading.Thread(target=asker.run, args=(stop,)) for asker in askers]
    for thread in threads:
        thread.start()
    return askers, threads

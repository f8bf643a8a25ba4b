"""Sessions that never stop asking while versions are published, each of which tells its number in its advice.

A version's model is the measured network beside a constant, the number; its advice is that number. So every decision
says which artifact made it, whatever the session believes.
"""

import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from policybridge_bench.network import FEATURES, SIGNATURE, make_network, observations
from policybridge_client.connection import ClientSession, Connection, connect
from policybridge_client.policies import RepositoryClient
from policybridge_serdes import PolicyReference, SessionOptions
from policybridge_serdes.digest import digest
from policybridge_serdes.errors import PolicyBridgeError, PolicyFailedError, PreconditionError

POLICY = "numbered"
Version = tuple[int, str]
"""Number and digest of a version."""

TOML = f'backend = "onnx"\n[settings.pack.observation]\nfeatures = {FEATURES}\n'
_LENGTHS = (*[8] * 50, 400)
"""Decisions of a client's sessions, in turn: many short ones, and one that outlives several versions."""


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
    """One client that opens a session, asks in it, closes it and opens the next.

    Attributes:
        connection: that the sessions are opened on.
        seed: of the observations.
        seen: which numbers answered, by version and digest; more than one would be a mix-up.
        errors: of sessions, if `run` asks.
        sessions: how many were opened.

    """

    connection: Connection
    seed: int = 1
    seen: dict[Version, set[int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    sessions: int = 0
    _session: ClientSession | None = None
    _left: int = 0

    def __post_init__(self) -> None:
        rows = observations(64, self.seed)
        self._values = [np.ndarray(1, SIGNATURE.features.dtype, row.tobytes()) for row in rows]

    def __call__(self, number: int) -> None:
        """Ask for one decision, with the observation of this number.

        Raises:
            PolicyBridgeError: the session could not be opened, or there is no answer.

        """
        session = self._session or self._open()
        advice = session.evaluate(self._values[number % len(self._values)])
        answered = int(advice[SIGNATURE.advice.name].item())
        self.seen.setdefault((session.policy.version, session.policy.digest), set()).add(answered)
        self._left -= 1
        if not self._left:
            self.close()

    def run(self, stop: threading.Event) -> None:
        """Ask until ``stop`` is set, and collect the errors."""
        number = 0
        while not stop.is_set():
            try:
                self(number)
            except PolicyBridgeError as error:
                self.errors.append(repr(error))
                self._session = None
            number += 1
        self.close()

    def close(self) -> None:
        """Close the open session."""
        if self._session is not None:
            self._session.close()
        self._session = None

    def _open(self) -> ClientSession:
        self._session = self.connection.open(PolicyReference(POLICY), SIGNATURE, SessionOptions())
        self._left = _LENGTHS[self.sessions % len(_LENGTHS)]
        self.sessions += 1
        return self._session


class Publisher:
    """Publishes one version after the other.

    Attributes:
        made: the number that each version must answer, by version and digest.
        refused: how many corrupt artifacts the server refused.
        seconds: of each call that published a version.

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
    """Fail if a session had an error, or an answer that its version's artifact does not give.

    Raises:
        PolicyFailedError: one had.

    """
    errors = [error for asker in askers for error in asker.errors]
    if errors:
        raise PolicyFailedError(f"{len(errors)} sessions failed; the first: {errors[0]}")
    for asker in askers:
        check_answers(asker.seen, publisher)


def check_answers(seen: Mapping[Version, set[int]], publisher: Publisher) -> None:
    """Fail if a version answered another number than that of its artifact.

    Raises:
        PolicyFailedError: one did.

    """
    for version, numbers in seen.items():
        if numbers != {publisher.made[version]}:
            raise PolicyFailedError(f"version {version} answered {numbers}, not {publisher.made[version]}")


def start(address: str, count: int, stop: threading.Event) -> tuple[list[Asker], list[threading.Thread]]:
    """Start ``count`` clients on connections of their own."""
    askers = [Asker(connect(address, timeout=30), index) for index in range(count)]
    threads = [threading.Thread(target=asker.run, args=(stop,)) for asker in askers]
    for thread in threads:
        thread.start()
    return askers, threads

"""A backend of another distribution whose model takes no second call while it evaluates."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest

from policybridge_client import open_runner
from policybridge_serdes import ElementType, TensorSpec
from tests.conftest import ServerFactory
from tests.plugins.building import install_backend

BACKEND = """
import threading
import time

import numpy as np

from policybridge_server.backends.contract import declared_signature


class Backend:
    runs_code = False

    def load(self, artifact, config):
        return Model(declared_signature(config))


class Model:
    batched = True
    inline = None

    def __init__(self, signature):
        self.signature = signature
        self._free = threading.Lock()

    def evaluate(self, batch):
        if not self._free.acquire(blocking=False):
            raise RuntimeError("evaluate is called while it runs")
        try:
            time.sleep(batch.values["milliseconds"].max() / 1000)
            answer = np.zeros(len(batch.values), batch.advice.dtype)
            answer["on_loop"] = threading.current_thread() is threading.main_thread()
            return answer
        finally:
            self._free.release()

    def close(self):
        pass
"""
TOML = """
backend = "exclusive"
features = [{name = "milliseconds", type = "int64_t", shape = [1]}]
advice = {name = "on_loop", type = "int64_t", shape = [1]}
"""
CLIENTS = 6
SLOW = 50
"""Milliseconds of an evaluation that moves the model to a worker."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(install_backend("exclusive", BACKEND, tmp_path)), prepend=":")
    (tmp_path / "policies" / "exclusive" / "1").mkdir(parents=True)
    (tmp_path / "policies" / "exclusive" / "1" / "nothing.txt").touch()
    (tmp_path / "policies" / "exclusive" / "policy.toml").write_text(TOML)
    return tmp_path / "policies"


def test_no_model_is_called_by_two_threads_at_once_on_its_ways_to_a_worker_and_back(
    repository: Path, server_factory: ServerFactory
) -> None:
    server = server_factory(repository)
    together = threading.Barrier(CLIENTS, timeout=120)

    def asks(number: int) -> None:
        # Each third client has a signature of its own, over each transport.
        names = ["milliseconds", *(f"unused{n}" for n in range(number % 3))]
        features = [TensorSpec(name, ElementType.INT64) for name in names]
        advice = TensorSpec("on_loop", ElementType.INT64)
        address = (server.socket, server.grpc)[number % 2]
        try:
            with open_runner(address, policy="exclusive", features=features, advice=advice, timeout=120) as runner:
                for milliseconds, times, on_loop in ((SLOW, 2, False), (0, 50, True), (SLOW, 2, False)):
                    together.wait()
                    runner["milliseconds"] = milliseconds
                    for _ in range(times):
                        runner.evaluate()
                    # A worker that has another job waiting keeps the model, so one client goes on alone.
                    until = monotonic() + 60
                    while number == 0 and runner.evaluate() != on_loop:
                        assert monotonic() < until
        except BaseException:
            together.abort()
            raise

    with ThreadPoolExecutor(CLIENTS) as pool:
        for asking in [pool.submit(asks, number) for number in range(CLIENTS)]:
            asking.result()

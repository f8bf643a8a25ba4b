"""One network in every framework: the same decisions on what LLVM really asks, and one process that serves them all."""

from pathlib import Path

import numpy as np
import pytest

from policybridge_client import connect
from policybridge_demo.export.formats import FORMATS
from policybridge_serdes import ElementType, Layout, PolicyReference, SessionOptions, Signature, TensorSpec
from policybridge_server.engine.probe import probe
from tests.conftest import ServerFactory
from tests.frameworks import ADVICE, expected_decisions, feature_names, llvm_observations, require, write_network
from tests.server.backends.backends import evaluate, load

for package in ("torch", "safetensors", "tensorflow", "ai_edge_litert"):
    require(package)

from tests.frameworks_torch import write_weights_network  # noqa: E402

POLICIES = [*FORMATS, "weights"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    for name in FORMATS:
        write_network(folder, name, name)
    write_weights_network(folder, "weights")
    return folder


@pytest.mark.parametrize("name", POLICIES)
def test_every_framework_decides_alike_on_ten_thousand_observations_of_llvm(repository: Path, name: str) -> None:
    model = load(repository, name)
    most, values = probe(model).most, llvm_observations()
    assert len(values) == 10_000
    assert model.signature.advice is not None
    batches = [values[start : start + most] for start in range(0, len(values), most)]
    given = [evaluate(model, batch, ADVICE)[ADVICE.name].reshape(-1) for batch in batches]
    assert np.array_equal(np.concatenate(given), expected_decisions())
    assert 1_000 < expected_decisions().sum() < 9_000
    model.close()


def test_one_server_serves_all_frameworks_at_once(repository: Path, server_factory: ServerFactory) -> None:
    server = server_factory(repository)
    signature = Signature(Layout.of(TensorSpec(name, ElementType.INT64) for name in feature_names()), ADVICE)
    connection = connect(server.socket, timeout=120)
    try:
        sessions = [connection.open(PolicyReference(name), signature, SessionOptions()) for name in POLICIES]
        for row in range(200):
            observation = llvm_observations()[row : row + 1]
            advices = {int(session.evaluate(observation)[ADVICE.name].item()) for session in sessions}
            assert advices == {expected_decisions()[row]}
    finally:
        connection.close()

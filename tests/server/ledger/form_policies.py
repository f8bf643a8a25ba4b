"""Policies whose forms are of other kinds: advice of floats, and a form of several messages."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from policybridge_client.local import Evaluate
from policybridge_serdes import ElementType, Signature, TensorSpec, Values, pack
from policybridge_server.ledger.reader import LedgerReader
from tests.conftest import RunningServer, running_server
from tests.onnx_models import make_model, write_onnx
from tests.server.ledger.asking import await_forms_of
from tests.training.embedding.networks import FEATURES, random_trees

WIDE: Final = Signature.of(
    [TensorSpec("x", ElementType.FLOAT, (FEATURES,))], TensorSpec("wide", ElementType.INT64, (1,))
)
"""Of the policy ``wide``; each is named as its advice."""

FLOATS: Final = {
    "scores": Signature.of(WIDE.features.specs, TensorSpec("scores", ElementType.FLOAT, (3,))),
    "doubles": Signature.of(WIDE.features.specs, TensorSpec("doubles", ElementType.DOUBLE, (1,))),
}
"""Of the policies whose advice is floats."""

Decides = Callable[[Signature, Evaluate], tuple[str, list[bytes]]]
"""Decides on `form_rows` there or here, and reports an outcome; gives the session's id, and the advices."""

_INPUT: Final[dict[str, tuple[int, list[int | str]]]] = {"x": (TensorProto.FLOAT, ["n", FEATURES])}


def write_form_policies(repository: Path) -> None:
    """Add ``scores``: trees; ``doubles``: a third of the largest; ``wide``: a network of 2 MiB, exact in floats."""
    for name, signature in FLOATS.items():
        write_onnx(repository, name, _trees(signature.advice, seed=len(name)))
    write_onnx(repository, "wide", _wide(), '[head]\nadvice = "wide"\n')


def _trees(advice: TensorSpec, seed: int) -> onnx.ModelProto:
    trees: dict[str, Any] = random_trees(np.random.default_rng(seed), 20, 3, "target")
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["sums"], domain="ai.onnx.ml", n_targets=3, **trees)
    if advice.type is ElementType.DOUBLE:
        third = helper.make_tensor("third", TensorProto.DOUBLE, [], [1 / 3])
        last = [
            helper.make_node("Cast", ["sums"], ["cast"], to=TensorProto.DOUBLE),
            helper.make_node("ReduceMax", ["cast"], ["largest"], axes=[1], keepdims=1),
            helper.make_node("Constant", [], ["third"], value=third),
            helper.make_node("Mul", ["largest", "third"], [advice.name]),
        ]
    else:
        last = [helper.make_node("Identity", ["sums"], [advice.name])]
    kind = TensorProto.DOUBLE if advice.type is ElementType.DOUBLE else TensorProto.FLOAT
    graph = helper.make_graph(
        [node, *last],
        "policy",
        [helper.make_tensor_value_info(name, *spec) for name, spec in _INPUT.items()],
        [helper.make_tensor_value_info(advice.name, kind, ["n", advice.count])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _wide() -> onnx.ModelProto:
    """Make a network of small multiples of 1/16, whose sums are exact in whatever order."""
    random = np.random.default_rng(3)
    weights = {
        "w0": random.integers(-1, 2, (FEATURES, 1024)).astype(np.float32),
        "w1": random.integers(-1, 2, (1024, 512)).astype(np.float32),
        "w2": (random.integers(-1, 2, (512, 3)) / 8).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h0"]),
        helper.make_node("Relu", ["h0"], ["r0"]),
        helper.make_node("MatMul", ["r0", "w1"], ["h1"]),
        helper.make_node("MatMul", ["h1", "w2"], ["scores"]),
    ]
    return make_model(nodes, _INPUT, {"scores": (TensorProto.FLOAT, ["n", 3])}, weights)


def form_rows(count: int, seed: int = 1) -> list[Values]:
    """Give observations for these policies: halves, many of which are bounds of the trees."""
    random = np.random.default_rng(seed)
    halves = random.integers(-12, 13, (count, FEATURES)) / 2
    return [pack(WIDE.features, {"x": row.astype(np.float32)}) for row in halves]


@contextmanager
def serving_form_policies(folder: Path) -> Iterator[RunningServer]:
    """Serve them, with a ledger, and wait until their forms are made."""
    write_form_policies(folder / "policies")
    with running_server(folder / "policies", folder, "--ledger", folder / "ledger.db") as server:
        for policy, signature in {**FLOATS, "wide": WIDE}.items():
            await_forms_of(server.socket, policy, signature)
        yield server


def assert_decides_alike(server: RunningServer, decides: Decides, signature: Signature) -> None:
    """Check that a client decides by the form as the server does, and that it is recorded so."""
    there, asked = decides(signature, "there")
    here, made = decides(signature, "here")
    assert made == asked
    assert len(set(asked)) > 1
    with LedgerReader(Path(server.socket.removeprefix("socket:")).parent / "ledger.db") as reader:
        sessions = [reader.session(each) for each in (there, here)]
        (expected,), (recorded,) = (reader.trajectory(each).batches for each in sessions)
    assert [each.labels for each in sessions] == [{}, {"evaluated": "client"}]
    assert recorded.observations.tobytes() == expected.observations.tobytes()
    assert recorded.advices.tobytes() == expected.advices.tobytes()
    assert b"".join(made) == expected.advices.tobytes()


class FormPoliciesConformance:
    """Clients decide by these forms as the server does; a subclass has the fixture ``decides``, its client."""

    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        return tmp_path / "policybridge" / "forms"

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls) -> Iterator[RunningServer]:
        with TemporaryDirectory(prefix="pb-") as name, serving_form_policies(Path(name)) as running:
            yield running

    @pytest.mark.parametrize("policy", FLOATS)
    def test_an_advice_of_floats_has_the_bits_of_the_server(
        self, server: RunningServer, decides: Decides, policy: str
    ) -> None:
        assert_decides_alike(server, decides, FLOATS[policy])

    def test_a_form_of_several_messages_comes_whole_and_is_kept(
        self, server: RunningServer, decides: Decides, cache: Path
    ) -> None:
        assert_decides_alike(server, decides, WIDE)
        (file,) = cache.iterdir()
        kept = file.stat()
        assert kept.st_size > 2 << 20
        assert_decides_alike(server, decides, WIDE)
        assert (file.stat().st_ino, file.stat().st_mtime_ns) == (kept.st_ino, kept.st_mtime_ns)

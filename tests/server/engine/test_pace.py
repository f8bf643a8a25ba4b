"""Where models run: by what their batches really take, and not by what they took once when they were loaded."""

import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from policybridge_client.contract import Connection
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec, Values, pack
from policybridge_server.engine.pace import INLINE_SECONDS, Pace
from policybridge_server.engine.probe import MAX_BATCH, probe
from tests.conftest import ServerFactory
from tests.onnx_models import make_model, write_onnx
from tests.repositories import answering, write_python
from tests.server.backends.backends import load
from tests.server.engine.misbehaving import ask, connected, open_session

WIDTH = 192
SUM = TensorSpec("sum", ElementType.FLOAT)
BY_NUMBER = Signature.of([TensorSpec("count", ElementType.INT64)], SUM)
BY_SHAPE = Signature.of([TensorSpec("x", ElementType.FLOAT, (-1,))], SUM)


def write_loop(repository: Path, name: str, *, by_shape: bool) -> None:
    """Add a policy that multiplies matrices as often as ``x`` is long, or as ``count`` says."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("MatMul", ["m", "w"], ["n"]), helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("go", TensorProto.BOOL, []),
            value("m", TensorProto.FLOAT, [WIDTH, WIDTH]),
        ],
        [value("on", TensorProto.BOOL, []), value("n", TensorProto.FLOAT, [WIDTH, WIDTH])],
    )
    count = (
        helper.make_node("Size", ["x"], ["times"]) if by_shape else helper.make_node("Squeeze", ["count"], ["times"])
    )
    nodes = [
        count,
        helper.make_node("Loop", ["times", "", "w"], ["last"], body=body),
        helper.make_node("ReduceSum", ["last"], ["all"], keepdims=0),
        helper.make_node("Reshape", ["all", "one"], ["sum"]),
    ]
    inputs: dict[str, tuple[int, list[int | str]]] = (
        {"x": (TensorProto.FLOAT, ["n"])} if by_shape else {"count": (TensorProto.INT64, [1])}
    )
    weights: dict[str, np.ndarray] = {"w": np.eye(WIDTH, dtype=np.float32), "one": np.array([1], np.int64)}
    write_onnx(repository, name, make_model(nodes, inputs, {"sum": (TensorProto.FLOAT, [1])}, weights), "")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    write_python(folder, "echo", answering("observation['x']"), "inline = true")
    return folder


def answered(asking: Connection, beside: Connection, policy: str, signature: Signature, slow: Values) -> int:
    """Ask ``policy`` something that takes seconds; give how many of 50 quick decisions are answered before it.

    On the loop thread it would let one or two by. Beside it they get a part of the cores alone.
    """
    session = asking.open(PolicyReference(policy), signature, SessionOptions())
    quick = open_session(beside, "echo")
    thread = threading.Thread(target=session.evaluate, args=(slow,))
    thread.start()
    count = 0
    while thread.is_alive() and count < 50:
        assert ask(quick, count) == count
        count += 1
    thread.join()
    return count


def test_a_slow_model_of_varying_shape_keeps_nobody_waiting(repository: Path, server_factory: ServerFactory) -> None:
    write_loop(repository, "loop", by_shape=True)
    server = server_factory(repository)
    slow = pack(BY_SHAPE.features, {"x": np.zeros(8_000, np.float32)})
    with connected(server) as connection, connected(server) as beside:
        assert answered(connection, beside, "loop", BY_SHAPE, slow) == 50


def test_a_model_that_proves_slow_only_when_it_is_asked_leaves_the_loop_thread(
    repository: Path, server_factory: ServerFactory
) -> None:
    write_loop(repository, "loop", by_shape=False)
    server = server_factory(repository)
    with connected(server) as connection, connected(server) as beside:
        session = connection.open(PolicyReference("loop"), BY_NUMBER, SessionOptions())
        # On a fast machine, too, this takes what tells a slow model from a moment without a core.
        session.evaluate(pack(BY_NUMBER.features, {"count": 8_000}))
        slow = pack(BY_NUMBER.features, {"count": 8_000})
        assert answered(connection, beside, "loop", BY_NUMBER, slow) == 50


@pytest.mark.parametrize("rows", [2, 5, 1])
def test_a_table_is_probed_with_indices_that_it_has_and_batched(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], rows: int
) -> None:
    table = np.arange(rows, dtype=np.float32)
    gather = helper.make_node("Gather", ["table", "x"], ["advice"])
    model = make_model(
        [gather],
        {"x": (TensorProto.INT64, ["batch", 1])},
        {"advice": (TensorProto.FLOAT, ["batch", 1])},
        {"table": table},
    )
    write_onnx(tmp_path, "table", model)
    found = probe(load(tmp_path, "table"))
    assert (found.least, found.most) == (1, MAX_BATCH)
    assert found.seconds is not None
    assert capfd.readouterr() == ("", "")


def test_a_moment_without_a_core_moves_no_model_but_slow_batches_do() -> None:
    assert not Pace().slow(0.03, 1, 1)
    assert Pace().slow(0.1, 1, 1)
    pace = Pace()
    assert [pace.slow(0.02, 1, 1) for _ in range(3)] == [False, False, True]
    # As many runs may take as long.
    assert not Pace().slow(0.1, 60, 60)


def test_a_model_comes_back_after_fast_batches_in_a_row_and_later_each_time() -> None:
    pace, fast = Pace(), INLINE_SECONDS / 2
    assert [pace.fast(fast, 1, 1) for _ in range(31)] == [False] * 31
    assert not pace.fast(1.0, 1, 1)
    assert [pace.fast(fast, 1, 1) for _ in range(32)] == [False] * 31 + [True]
    assert [pace.fast(fast, 1, 1) for _ in range(64)] == [False] * 63 + [True]

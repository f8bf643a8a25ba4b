"""The model runner, over every connection there is."""

import multiprocessing
import os
from collections.abc import Iterator
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policybridge_client.runner import ModelRunner, open_runner
from policybridge_core.errors import InvalidError, NotFoundError, PolicyFailedError, PreconditionError
from policybridge_serdes import ElementType, TensorSpec
from tests.conftest import RunningServer

FEATURES = [
    TensorSpec("a", ElementType.INT64),
    TensorSpec("ignored", ElementType.FLOAT, (2, 3)),
    TensorSpec("b", ElementType.INT64),
    TensorSpec("names", ElementType.STRING, (-1,)),
    TensorSpec("values", ElementType.FLOAT, (-1, 2)),
]
SUM = TensorSpec("sum", ElementType.INT64)


@pytest.fixture(params=["socket", "grpc", "inprocess"])
def address(request: pytest.FixtureRequest, server: RunningServer, policies: Path) -> str:
    return {"socket": server.socket, "grpc": server.grpc, "inprocess": f"inprocess:{policies}"}[request.param]


@pytest.fixture
def runner(address: str) -> Iterator[ModelRunner]:
    with open_runner(address, policy="sum", features=FEATURES, advice=SUM) as runner:
        yield runner


def test_buffers_are_written_in_place_by_index_and_by_name(runner: ModelRunner) -> None:
    runner[0][:] = 2
    runner["b"][0] = 3
    assert runner.evaluate() == 5
    runner[2] += 10
    assert runner.evaluate() == 15


def test_an_advice_of_one_element_is_a_scalar_of_its_type(runner: ModelRunner) -> None:
    runner["a"] = 2**62
    advice = runner.evaluate()
    assert isinstance(advice, np.int64)
    assert advice == 2**62


def test_evaluating_leaves_the_features_untouched(runner: ModelRunner) -> None:
    runner["a"] = 7
    runner["ignored"] = np.arange(6, dtype=np.float32).reshape(2, 3)
    runner["names"] = ["x", "größer"]
    runner["values"] = [[1, 2]]
    runner.evaluate()
    assert [runner["a"].tolist(), runner["names"].tolist()] == [[7], ["x", "größer"]]
    assert [runner[1].tolist(), runner[4].tolist()] == [[[0, 1, 2], [3, 4, 5]], [[1, 2]]]
    assert runner.evaluate() == 7


def test_a_value_that_does_not_fit_is_refused_and_changes_nothing(runner: ModelRunner) -> None:
    runner["a"] = 1
    for feature, value in (("a", [1, 2]), ("a", 0.5), ("a", 2**64 - 1), ("names", [1]), ("values", [1.0]), (1, [1, 2])):
        with pytest.raises(InvalidError):
            runner[feature] = value
    assert runner.evaluate() == 1


def test_a_feature_that_is_not_there_is_named_with_those_that_are(runner: ModelRunner) -> None:
    with pytest.raises(KeyError, match="ignored"):
        runner["c"] = 1
    with pytest.raises(IndexError):
        runner[5] = 1


def test_a_value_that_was_assigned_is_the_runners_own(runner: ModelRunner) -> None:
    values = np.ones((3, 2), np.float32)
    runner["values"] = values
    values[:] = 9
    assert runner["values"].max() == 1


@pytest.mark.parametrize("rows", [1, 5])
def test_features_may_vary_in_size(address: str, rows: int) -> None:
    mean = TensorSpec("mean", ElementType.FLOAT, ())
    with open_runner(address, policy="mean", features=FEATURES, advice=mean) as runner:
        runner["values"] = np.arange(rows * 2).reshape(rows, 2)
        assert runner.evaluate() == np.arange(rows * 2).mean()


def test_an_advice_of_many_elements_is_an_array_of_the_callers_own(address: str) -> None:
    features = [TensorSpec("a", ElementType.INT64, (2, 2)), TensorSpec("b", ElementType.INT64)]
    with open_runner(
        address, policy="sum", features=features, advice=TensorSpec("s", ElementType.INT64, (2, 2))
    ) as runner:
        runner["a"] = [[1, 2], [3, 4]]
        runner["b"] = 1
        advice = runner.evaluate()
        assert isinstance(advice, np.ndarray)
        advice[:] = 0
        assert np.asarray(runner.evaluate()).tolist() == [[2, 3], [4, 5]]


def test_a_text_may_be_the_advice(address: str) -> None:
    longest = TensorSpec("longest", ElementType.STRING, ())
    with open_runner(address, policy="longest", features=FEATURES, advice=longest) as runner:
        runner["names"] = ["a", "größer", "bb"]
        assert runner.evaluate() == "größer"


def test_the_runner_says_who_answers(address: str) -> None:
    with open_runner(address, policy="never@1", features=FEATURES, advice=SUM, labels={"x": "y"}) as runner:
        runner.context("f")
        assert runner.evaluate() == 0
        assert (runner.policy.name, runner.policy.version) == ("never", 1)
        assert runner.session_id


def test_an_error_of_the_policy_is_raised_and_never_an_advice(address: str) -> None:
    with open_runner(address, policy="sum", features=FEATURES, advice=SUM, options={"raise_at": "2"}) as runner:
        assert runner.evaluate() == 0
        with pytest.raises(PolicyFailedError, match="boom"):
            runner.evaluate()
        with pytest.raises(PreconditionError):
            runner.evaluate()


def test_an_unknown_policy_is_not_found(address: str) -> None:
    with pytest.raises(NotFoundError, match="nobody"):
        open_runner(address, policy="nobody", features=FEATURES, advice=SUM)


def test_a_runner_says_who_answers_and_what_is_asked(address: str) -> None:
    with open_runner(address, policy="sum", features=[FEATURES[0], FEATURES[2]], advice=SUM) as runner:
        shown = f"sum@1, session {runner.session_id}"
        assert repr(runner) == f"<ModelRunner of {shown}: a: int64_t[1], b: int64_t[1] -> sum: int64_t[1]>"
    assert repr(runner).startswith(f"<ModelRunner of {shown}, closed: ")
    with open_runner(address, policy="sum", features=FEATURES, advice=SUM) as runner:
        assert "b: int64_t[1], … -> sum: int64_t[1]>" in repr(runner)


def test_what_the_examples_use_is_where_they_look() -> None:
    for package, names in (
        ("policybridge_client", ["Outcome", "PolicyReference", "SessionOptions", "Signature", "TensorSpec", "connect"]),
        ("policybridge_client.llvm", ["HostConfig", "run_compiler"]),
        ("policybridge_server.ledger", ["LedgerReader", "Query"]),
    ):
        assert set(names) <= set(import_module(package).__all__)


def test_a_place_for_decisions_that_does_not_exist_is_refused_with_those_that_do(address: str) -> None:
    wrong: Any = "server"
    with pytest.raises(InvalidError, match="evaluate is 'server'; decisions are made there, auto, here"):
        open_runner(address, policy="sum", features=FEATURES, advice=SUM, evaluate=wrong)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_cannot_use_or_end_the_runner_of_its_parent(server: RunningServer) -> None:
    with open_runner(server.socket, policy="sum", features=FEATURES, advice=SUM) as runner:
        runner["a"] = 7
        told, said = multiprocessing.get_context("fork").Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(target=use, args=(runner, said))
        child.start()
        refused = [told.recv() for _ in range(2)]
        child.join()
        assert (
            refused
            == [f"process {os.getpid()} opened this runner, and {child.pid} was forked from it: open one in each"] * 2
        )
        assert runner.evaluate() == 7


def use(runner: ModelRunner, told: Connection) -> None:
    """Use the runner; give the error's message."""
    for use_it in (runner.evaluate, runner.report):
        try:
            use_it()
        except PreconditionError as error:
            told.send(str(error))
    runner.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_may_use_a_runner_in_process(policies: Path) -> None:
    with open_runner(f"inprocess:{policies}", policy="sum", features=FEATURES, advice=SUM) as runner:
        runner["a"] = 7
        told, said = multiprocessing.get_context("fork").Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(target=lambda: said.send(int(runner.evaluate())))
        child.start()
        assert told.recv() == 7
        child.join()

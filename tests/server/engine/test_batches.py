"""What one observation does to the others of its batch: nothing."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from policybridge_core.errors import (
    InvalidError,
    PermissionDeniedError,
    PolicyBridgeError,
    PolicyFailedError,
    UnsupportedError,
)
from policybridge_serdes import (
    ElementType,
    Exploration,
    Outcome,
    PolicyReference,
    SessionOptions,
    Signature,
    TensorSpec,
    Values,
    pack,
)
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.session import Session
from policybridge_server.repository import Repository
from tests.onnx_models import make_model, write_onnx
from tests.repositories import answering, write_python
from tests.server.engine.misbehaving import X


class Told:
    """A client's sink."""

    def __init__(self) -> None:
        self.advice: list[int] = []
        self.errors: list[PolicyBridgeError] = []

    def answer(self, advice: Values, log_probability: float | None) -> None:
        self.advice.append(int(advice["advice"].item()))

    def fail(self, error: PolicyBridgeError) -> None:
        self.errors.append(error)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    write_python(tmp_path, "each", answering("observation['x'] * 2 if observation['x'] >= 0 else 1 // 0"))
    node = helper.make_node("Gather", ["table", "x"], ["advice"])
    integer: tuple[int, list[int | str]] = (TensorProto.INT64, ["n", 1])
    table = {"table": np.arange(100, dtype=np.int64) * 2}
    # A number that is in no row of the table fails the whole run of the model.
    write_onnx(tmp_path, "table", make_model([node], {"x": integer}, {"advice": integer}, table))
    number: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["n", 1])
    root = helper.make_node("Sqrt", ["x"], ["advice"])
    write_onnx(tmp_path, "root", make_model([root], {"x": number}, {"advice": number}))
    own = 'advice = {name = "own", type = "int64_t", shape = [1]}\n[head]\nscores = "choice"\nchoices = 3\n'
    write_python(tmp_path, "own", answering("1"), own)
    engine = Engine(Repository([tmp_path]), allow_python=True)
    yield engine
    engine.close()


def opened(engine: Engine, policy: str) -> tuple[Session, Told]:
    told = Told()
    session = engine.open(engine.load(PolicyReference(policy)), SessionOptions(), told)
    session.bind(X)
    return session, told


@pytest.mark.parametrize("policy", ["each", "table"])
@pytest.mark.parametrize("bad", [0, 3, 7])
def test_one_bad_observation_costs_its_session_alone(engine: Engine, policy: str, bad: int) -> None:
    clients = [opened(engine, policy) for _ in range(8)]
    for number, (session, _) in enumerate(clients):
        session.submit(pack(X.features, {"x": -1000 if number == bad else number}))
    assert engine.flush() == 8
    loaded = engine.loaded(PolicyReference(policy))
    assert loaded is not None
    assert loaded.counters.batches.count == 1, "all are one batch"
    for number, (_, told) in enumerate(clients):
        if number == bad:
            assert not told.advice
            assert [type(error) for error in told.errors] == [PolicyFailedError]
        else:
            assert (told.advice, told.errors) == ([2 * number], [])


def test_the_failures_of_a_batch_are_counted_by_observation(engine: Engine) -> None:
    clients = [opened(engine, "each") for _ in range(8)]
    for number, (session, _) in enumerate(clients):
        session.submit(pack(X.features, {"x": -(number % 2)}))
    engine.flush()
    loaded = engine.loaded(PolicyReference("each"))
    assert loaded is not None
    assert loaded.failures == 4


class Slow(Told):
    """A client's sink that takes 10 ms for each advice."""

    def answer(self, advice: Values, log_probability: float | None) -> None:
        time.sleep(0.01)
        super().answer(advice, log_probability)


def test_each_decision_of_a_batch_counts_the_answers_of_the_whole_batch(engine: Engine) -> None:
    loaded = engine.load(PolicyReference("table"))
    sinks = [Slow(), Slow()]
    for sink in sinks:
        session = engine.open(loaded, SessionOptions(), sink)
        session.bind(X)
        session.submit(pack(X.features, {"x": 1}))
    assert engine.flush() == 2
    assert [sink.advice for sink in sinks] == [[2], [2]]
    answered = loaded.counters.answered
    assert answered.count == 2
    assert answered.total >= 2 * 2 * 10_000_000


def test_advice_that_is_not_a_number_is_an_error_of_its_session_alone(engine: Engine) -> None:
    floats = Signature.of([TensorSpec("x", ElementType.FLOAT)], TensorSpec("advice", ElementType.FLOAT))
    told = [Told(), Told()]
    for each, value in zip(told, (-4.0, 9.0), strict=True):
        session = engine.open(engine.load(PolicyReference("root")), SessionOptions(), each)
        session.bind(floats)
        session.submit(pack(floats.features, {"x": value}))
    engine.flush()
    assert [str(error) for error in told[0].errors] == ["the policy gave NaN for advice: float[1]"]
    assert told[0].advice == []
    assert (told[1].errors, told[1].advice) == ([], [3])


@pytest.mark.parametrize(
    ("policy", "exploration", "told"),
    [
        ("each", Exploration(epsilon=0.5), "each@1 has no advice head"),
        ("own", Exploration(temperature=1.0), "it explores by epsilon alone"),
        ("own", Exploration(epsilon=0.5), None),
    ],
)
def test_a_session_explores_only_as_its_policy_can(
    engine: Engine, policy: str, exploration: Exploration, told: str | None
) -> None:
    def explored() -> Session:
        loaded = engine.load(PolicyReference(policy))
        return engine.open(loaded, SessionOptions(exploration=exploration), Told())

    if told is None:
        explored().close()
    else:
        with pytest.raises(InvalidError, match=told):
            explored()


def test_an_outcome_of_a_reporter_is_refused_only_if_outcomes_need_the_scope(engine: Engine) -> None:
    def report(reporter: str) -> None:
        engine.report("nobody", Outcome({"x": 1.0}), lambda _: None, reporter)

    with pytest.raises(UnsupportedError, match="this server keeps no ledger"):
        report("the token ci")
    engine.needs_report_scope = True
    with pytest.raises(PermissionDeniedError, match="which the token ci lacks"):
        report("the token ci")
    with pytest.raises(UnsupportedError):
        report("")

"""Policies with a model for each kind of decision."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from policybridge_client.connection import connect
from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_serdes import (
    ElementType,
    Exploration,
    PolicyReference,
    SessionOptions,
    Signature,
    TensorSpec,
    Values,
    pack,
)
from policybridge_server.engine.engine import Engine
from policybridge_server.repository import Repository
from tests.conftest import ServerFactory
from tests.onnx_models import make_model
from tests.server.engine.misbehaving import X
from tests.server.publishing.policies import adder, client

INT = ElementType.INT64
ADDS = Signature(X.features, TensorSpec("adds", INT))
CHOOSES = Signature.of([TensorSpec("size", INT)], TensorSpec("chooses", INT))
OTHER = Signature(X.features, TensorSpec("other", INT))

TOML = """
backend = "onnx"
decides = ["adds", "chooses"]

[kinds.adds.settings]
file = "adds.onnx"

[kinds.chooses]
settings = {file = "chooses.onnx", pack.observation.features = ["size"]}

[kinds.chooses.head]
advice = "chooses"
"""


def chooser() -> onnx.ModelProto:
    """Score three choices by 0, the size, and 10."""
    nodes = [
        helper.make_node("MatMul", ["observation", "weights"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["scores"]),
    ]
    weights = {"weights": np.array([[0, 1, 0]], np.float32), "bias": np.array([0, 0, 10], np.float32)}
    observation: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["batch", 1])
    return make_model(nodes, {"observation": observation}, {"scores": (TensorProto.FLOAT, ["batch", 3])}, weights)


def write_version(folder: Path, number: int) -> Path:
    """Write a version that adds a number, and chooses."""
    folder.mkdir(parents=True)
    onnx.save(adder(number), folder / "adds.onnx")
    onnx.save(chooser(), folder / "chooses.onnx")
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    repository = tmp_path / "repository"
    write_version(repository / "both" / "1", 100)
    (repository / "both" / "policy.toml").write_text(TOML)
    return repository


@pytest.fixture
def engine(repository: Path) -> Iterator[Engine]:
    engine = Engine(Repository([repository]), allow_python=False)
    yield engine
    engine.close()


class Told:
    """A client's sink."""

    def __init__(self) -> None:
        self.advice: list[int] = []

    def answer(self, advice: Values, log_probability: float | None) -> None:
        self.advice.append(int(advice[advice.dtype.names[0]].item()))  # type: ignore[index]

    def fail(self, error: Exception) -> None:
        raise error


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_one_session_is_decided_by_the_model_of_each_kind(repository: Path, isolation: str) -> None:
    toml = repository / "both" / "policy.toml"
    toml.write_text(f'isolation = "{isolation}"\n{toml.read_text()}')
    engine, told = Engine(Repository([repository]), allow_python=False), Told()
    session = engine.open(engine.load(PolicyReference("both")), SessionOptions(), told)
    asked = [(ADDS, {"x": 1}), (CHOOSES, {"size": 9}), (CHOOSES, {"size": 11}), (ADDS, {"x": 2})]
    for signature, values in asked:
        session.bind(signature)
        session.submit(pack(signature.features, values))
        engine.flush()
    assert told.advice == [101, 2, 1, 102]
    assert session.decides == ("adds", "chooses")
    session.close()
    engine.close()


def test_a_kind_without_a_model_is_refused_by_name(engine: Engine) -> None:
    loaded = engine.load(PolicyReference("both"))
    session = engine.open(loaded, SessionOptions(), Told())
    for bound in (session.bind, lambda signature: loaded.keep(signature, engine.schedule)):
        with pytest.raises(InvalidError, match="both@1 decides adds, chooses, and not 'other'"):
            bound(OTHER)


def test_a_session_explores_if_each_kind_has_a_head(repository: Path, engine: Engine) -> None:
    options = SessionOptions(exploration=Exploration(seed=1, epsilon=0.5))
    with pytest.raises(InvalidError, match="both@1 has no advice head"):
        engine.open(engine.load(PolicyReference("both")), options, Told())
    toml = repository / "both" / "policy.toml"
    toml.write_text(
        TOML.replace(
            "[kinds.chooses.head]", "[kinds.adds.head]\nscores = 'choice'\nchoices = 200\n[kinds.chooses.head]"
        )
    )
    headed, told = Engine(Repository([repository]), allow_python=False), Told()
    session = headed.open(headed.load(PolicyReference("both")), options, told)
    for signature, values in [(ADDS, {"x": 1}), (CHOOSES, {"size": 9})] * 20:
        session.bind(signature)
        session.submit(pack(signature.features, values))
        headed.flush()
    assert {*told.advice[::2]} > {101}
    assert {*told.advice[1::2]} == {0, 1, 2}
    headed.close()


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        (TOML.replace(', "chooses"]', "]"), "decides names the kinds of decisions"),
        (TOML.replace("decides", "description = 'x' # "), "decides names the kinds of decisions"),
        (TOML.replace("decides", "fill = {x = 1}\ndecides"), r"write \[kinds.KIND.fill\] for each kind"),
        (TOML + "backend = 'torch'\n", "unknown field `backend`"),
    ],
)
def test_a_policy_toml_whose_kinds_do_not_fit_is_refused(repository: Path, toml: str, why: str) -> None:
    (repository / "both" / "policy.toml").write_text(toml)
    with pytest.raises(PreconditionError, match=why):
        Repository([repository]).resolve(PolicyReference("both"))


def test_the_model_that_cannot_be_loaded_is_named(repository: Path) -> None:
    (repository / "both" / "1" / "chooses.onnx").unlink()
    engine = Engine(Repository([repository]), allow_python=False)
    with pytest.raises(PreconditionError, match=r"both@1 cannot be loaded: .*chooses\.onnx"):
        engine.load(PolicyReference("both"))
    engine.close()


def test_a_new_version_is_published_and_one_that_takes_other_features_is_refused(
    repository: Path, server_factory: ServerFactory, tmp_path: Path
) -> None:
    server = server_factory(repository, "--allow-publish")
    with client(server) as publishing, connect(server.grpc, timeout=60) as connection:
        version = publishing.repository.publish("both", write_version(tmp_path / "new", 200))
        assert version.version == 2
        with connection.open(PolicyReference("both"), ADDS, SessionOptions()) as session:
            assert session.evaluate(pack(ADDS.features, {"x": 1}))["adds"].item() == 201
        with connection.open(PolicyReference("both"), CHOOSES, SessionOptions()) as session:
            assert session.evaluate(pack(CHOOSES.features, {"size": 11}))["chooses"].item() == 1
        wrong = write_version(tmp_path / "wrong", 300)
        onnx.save(adder(300, ["x", "y"]), wrong / "adds.onnx")
        with pytest.raises(PreconditionError, match=r"clients of both@2 could not go on with both@3: .*y"):
            publishing.repository.publish("both", wrong)
        with pytest.raises(PreconditionError, match="a model for each kind of decision"):
            publishing.repository.publish_weights(PolicyReference("both"), {"own": np.array([[1]], np.int64)})

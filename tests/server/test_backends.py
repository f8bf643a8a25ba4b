"""The backend contract: one suite, which every backend's tests inherit."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from onnx import TensorProto, helper

from policybridge_bench.network import FEATURES, observations, write_network
from policybridge_serdes import (
    ElementType,
    Layout,
    PolicyReference,
    PolicyVersion,
    TensorSpec,
    Values,
    join,
    pack,
    tensor,
)
from policybridge_serdes.errors import PreconditionError
from policybridge_server.backends.contract import Batch, Model, SessionView, load_backend
from policybridge_server.engine.probe import probe
from policybridge_server.repository import Repository
from tests.repositories import answering, make_model, write_onnx, write_python

SESSION = SessionView("a", PolicyVersion("p", 1, ""))
SAMPLES: dict[ElementType, list[Any]] = {
    ElementType.FLOAT: [1.5, -0.0, np.inf],
    ElementType.DOUBLE: [1.5, 5e-324, -np.inf],
    ElementType.BOOL: [True, False, True],
    ElementType.STRING: ["a", "", "größer"],
    ElementType.BYTES: [b"a", b"", b"\0\xff"],
    **{
        kind: [np.iinfo(kind.dtype).min, 0, np.iinfo(kind.dtype).max] for kind in ElementType if kind.dtype.kind in "iu"
    },
}


def load(repository: Path, name: str) -> Model:
    stored = Repository([repository]).resolve(PolicyReference(name))
    return load_backend(stored.config.backend).load(stored.folder, stored.config)


def evaluate(model: Model, values: Values, advice: TensorSpec) -> Values:
    return model.evaluate(Batch(values, [SESSION] * len(values), Layout((advice,))))


class BackendContract:
    """What every backend must do; a subclass says how its artifacts are written."""

    types: ClassVar[list[ElementType]]
    backend: ClassVar[str]
    artifact: ClassVar[str]

    def write_identity(self, repository: Path, spec: TensorSpec) -> None:
        """Add the policy ``same``: the advice is the feature ``x``, which looks like ``spec``."""
        raise NotImplementedError

    def write_difference(self, repository: Path) -> None:
        """Add the policy ``difference``: int64 features ``b`` and ``a``, declared in that order; advice a − b."""
        raise NotImplementedError

    @pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3)])
    def test_advice_has_the_bits_and_shape_that_the_policy_gives(self, tmp_path: Path, shape: tuple[int, ...]) -> None:
        for kind in self.types:
            spec = TensorSpec("x", kind, shape)
            self.write_identity(tmp_path / kind.name, spec)
            samples = SAMPLES[kind][: spec.count]
            values = pack(Layout((spec,)), {"x": np.array(samples, kind.dtype).reshape(shape)})
            model = load(tmp_path / kind.name, "same")
            advice = evaluate(model, values, TensorSpec("advice", kind, shape))
            given = tensor(TensorSpec("advice", kind, shape), advice)
            assert given.tolist() == tensor(spec, values).tolist()
            assert given.dtype == kind.dtype
            model.close()

    def test_a_shape_that_varies_is_taken_as_it_comes(self, tmp_path: Path) -> None:
        spec = TensorSpec("x", ElementType.FLOAT, (-1,))
        self.write_identity(tmp_path, spec)
        model = load(tmp_path, "same")
        for size in (0, 1, 5):
            values = pack(Layout((spec,)), {"x": np.arange(size, dtype=np.float32)})
            advice = evaluate(model, values, TensorSpec("advice", ElementType.FLOAT, (-1,)))
            assert tensor(TensorSpec("advice", ElementType.FLOAT, (-1,)), advice).tolist() == list(range(size))

    def test_inputs_are_found_by_name(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        model = load(tmp_path, "difference")
        features = model.signature.features
        assert features is not None
        advice = evaluate(model, pack(features, {"a": 10, "b": 3}), TensorSpec("advice", ElementType.INT64))
        assert advice["advice"].tolist() == [[7]]

    def test_an_observation_gives_the_same_bits_alone_and_in_a_batch(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        model = load(tmp_path, "difference")
        features = model.signature.features
        assert features is not None
        spec = TensorSpec("advice", ElementType.INT64)
        rows = [pack(features, {"a": number, "b": 3}) for number in range(5)]
        alone = [evaluate(model, row, spec).tobytes() for row in rows]
        if model.batched:
            assert evaluate(model, join(features, rows), spec).tobytes() == b"".join(alone)
        else:
            assert probe(model).most == 1

    def test_a_missing_artifact_is_refused_by_its_name(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        (tmp_path / "difference" / "1" / self.artifact).unlink()
        with pytest.raises(PreconditionError, match=self.artifact):
            load(tmp_path, "difference")

    def test_a_corrupt_artifact_is_refused_by_its_name(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        (tmp_path / "difference" / "1" / self.artifact).write_bytes(b"\xff\x00 no artifact")
        with pytest.raises(PreconditionError, match=self.artifact):
            load(tmp_path, "difference")

    def test_an_unknown_setting_is_refused_by_its_name(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        with (tmp_path / "difference" / "policy.toml").open("a") as file:
            file.write("\n[settings]\nfiel = 'x'\n")
        with pytest.raises(PreconditionError, match="fiel"):
            load(tmp_path, "difference")


class TestPython(BackendContract):
    types: ClassVar = list(ElementType)
    backend = "python"
    artifact = "policy.py"

    def write_identity(self, repository: Path, spec: TensorSpec) -> None:
        write_python(repository, "same", answering("observation['x']"))

    def write_difference(self, repository: Path) -> None:
        declared = ", ".join(f'{{name = "{name}", type = "int64_t", shape = [1]}}' for name in "ba")
        source = answering("observation['a'] - observation['b']")
        write_python(repository, "difference", source, f"features = [{declared}]\n")

    def test_a_policy_is_told_when_its_sessions_start_and_end(self, tmp_path: Path) -> None:
        write_python(
            tmp_path,
            "counts",
            """
            class Policy:
                def start(self, session):
                    session.state["asked"] = 100 * len(session.options)

                def evaluate(self, observation, session):
                    session.state["asked"] += 1
                    return session.state["asked"]

                def end(self, session):
                    session.state["asked"] = "ended"
            """,
        )
        model = load(tmp_path, "counts")
        spec = TensorSpec("advice", ElementType.INT64)
        values = pack(Layout((TensorSpec("x", ElementType.INT64),)), {"x": 0})
        first, second = SessionView("1", SESSION.policy, options={"o": "1"}), SessionView("2", SESSION.policy)
        given = [
            model.evaluate(Batch(values, [session], Layout((spec,))))["advice"].item()
            for session in (first, second, first, second)
        ]
        assert given == [101, 1, 102, 2]
        model.end(first)  # type: ignore[attr-defined]
        assert (first.state, second.state) == ({"asked": "ended"}, {"asked": 2})

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            ("None", "returned None; it must return advice"),
            ("[1, 2]", "advice: int64_t\\[1\\] was given a value of shape \\[2\\]"),
            ("float('nan')", "advice: int64_t\\[1\\] was given float64 values"),
            ("2 ** 63", "advice: int64_t\\[1\\] was given uint64 values out of its range"),
            ("'yes'", "advice: int64_t\\[1\\] was given"),
            ("observation['y']", "no feature 'y'; the client sends x"),
        ],
    )
    def test_an_answer_that_is_no_advice_is_refused(self, tmp_path: Path, answer: str, message: str) -> None:
        write_python(tmp_path, "wrong", answering(answer))
        values = pack(Layout((TensorSpec("x", ElementType.INT64),)), {"x": 0})
        with pytest.raises(Exception, match=message):
            evaluate(load(tmp_path, "wrong"), values, TensorSpec("advice", ElementType.INT64))


ONNX_TYPES = {
    ElementType.FLOAT: TensorProto.FLOAT,
    ElementType.DOUBLE: TensorProto.DOUBLE,
    ElementType.BOOL: TensorProto.BOOL,
    ElementType.STRING: TensorProto.STRING,
    **{kind: getattr(TensorProto, kind.name) for kind in ElementType if kind.dtype.kind in "iu"},
}


class TestOnnx(BackendContract):
    types: ClassVar = list(ONNX_TYPES)
    backend = "onnx"
    artifact = "model.onnx"

    def write_identity(self, repository: Path, spec: TensorSpec) -> None:
        shape: list[int | str] = ["batch", *("n" if dim < 0 else dim for dim in spec.shape)]
        node = helper.make_node("Identity", ["x"], ["advice"])
        kind = ONNX_TYPES[spec.type]
        write_onnx(repository, "same", make_model([node], {"x": (kind, shape)}, {"advice": (kind, shape)}))

    def write_difference(self, repository: Path) -> None:
        node = helper.make_node("Sub", ["a", "b"], ["advice"])
        spec: tuple[int, list[int | str]] = (TensorProto.INT64, ["batch", 1])
        write_onnx(repository, "difference", make_model([node], {"b": spec, "a": spec}, {"advice": spec}))

    def test_a_packed_input_is_made_of_its_features_in_order(self, tmp_path: Path) -> None:
        write_network(tmp_path, "packed")
        write_network(tmp_path, "named", packed=False)
        packed, named = load(tmp_path, "packed"), load(tmp_path, "named")
        assert packed.signature == named.signature
        features = named.signature.features
        assert features is not None
        rows = [pack(features, dict(zip(FEATURES, row, strict=True))) for row in observations(64)]
        spec = TensorSpec("inlining_decision", ElementType.INT64)
        batch = join(features, rows)
        assert evaluate(packed, batch, spec).tobytes() == evaluate(named, batch, spec).tobytes()
        assert 0 < evaluate(packed, batch, spec)["inlining_decision"].sum() < 64

    def test_a_model_with_a_fixed_first_dimension_is_asked_singly(self, tmp_path: Path) -> None:
        node = helper.make_node("Add", ["x", "x"], ["advice"])
        spec: tuple[int, list[int | str]] = (TensorProto.INT64, [1])
        write_onnx(tmp_path, "twice", make_model([node], {"x": spec}, {"advice": spec}))
        model = load(tmp_path, "twice")
        assert (model.batched, probe(model).most) == (False, 1)
        values = pack(Layout((TensorSpec("x", ElementType.INT64),)), {"x": 21})
        assert evaluate(model, values, TensorSpec("advice", ElementType.INT64))["advice"].tolist() == [[42]]

    def test_one_of_several_outputs_is_named_in_the_settings(self, tmp_path: Path) -> None:
        nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Neg", ["x"], ["minus"])]
        spec: tuple[int, list[int | str]] = (TensorProto.INT64, ["batch", 1])
        model = make_model(nodes, {"x": spec}, {"same": spec, "minus": spec})
        write_onnx(tmp_path, "both", model)
        write_onnx(tmp_path, "one", model, '[settings]\noutput = "minus"')
        with pytest.raises(PreconditionError, match="outputs are same, minus"):
            load(tmp_path, "both")
        values = pack(Layout((TensorSpec("x", ElementType.INT64),)), {"x": 5})
        assert evaluate(load(tmp_path, "one"), values, TensorSpec("minus", ElementType.INT64))["minus"].item() == -5

    def test_a_model_that_fails_inside_says_so(self, tmp_path: Path) -> None:
        nodes = [helper.make_node("Gather", ["table", "x"], ["advice"])]
        weights = {"table": np.array([10, 20], np.int64)}
        spec: tuple[int, list[int | str]] = (TensorProto.INT64, ["batch", 1])
        write_onnx(tmp_path, "table", make_model(nodes, {"x": spec}, {"advice": spec}, weights))
        model = load(tmp_path, "table")
        values = pack(Layout((TensorSpec("x", ElementType.INT64),)), {"x": 9})
        with pytest.raises(Exception, match="ONNX Runtime"):
            evaluate(model, values, TensorSpec("advice", ElementType.INT64))

"""The backends python and onnx by the contract of all, and what is theirs alone."""

import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from policybridge_bench.network import FEATURES, observations, write_network
from policybridge_client import open_runner
from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_serdes import ElementType, Layout, TensorSpec, join, pack
from policybridge_server.backends.contract import Batch, SessionView, load_backend
from policybridge_server.engine.probe import probe
from tests.frameworks import ADVICE as DECISION
from tests.frameworks import write_network as write_exported
from tests.onnx_models import make_model, write_onnx
from tests.repositories import answering, write_python
from tests.server.backends.backends import (
    ADVICE,
    MIXTURE,
    SESSION,
    BackendContract,
    TensorContract,
    add_setting,
    evaluate,
    load,
)


@pytest.mark.parametrize(
    ("name", "package"),
    [("litert", "ai_edge_litert"), ("onnx", "onnxruntime"), ("tensorflow", "tensorflow"), ("torch", "torch")],
)
def test_a_missing_framework_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    for module in [each for each in sys.modules if each.startswith(f"policybridge_server.backends.{name}")]:
        monkeypatch.delitem(sys.modules, module)
    for module in [package, *(each for each in sys.modules if each.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PreconditionError, match=rf"'{package}.*': pip install 'policybridge\[{name}\]'"):
        load_backend(name)


def test_frameworks_are_loaded_only_when_a_policy_needs_them() -> None:
    code = (
        "import sys; from policybridge_server import daemon, embedded; "
        "print({'torch', 'tensorflow', 'onnxruntime', 'ai_edge_litert', 'jax'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


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

    def write_table(self, repository: Path, size: int) -> None:
        source = f"""
            import array

            TABLE = array.array("f", [1.0]) * {size}

            class Policy:
                def evaluate(self, observation, session):
                    return TABLE[observation["x"].item()]
            """
        write_python(repository, "table", source)

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


class TestOnnx(TensorContract):
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

    def write_table(self, repository: Path, size: int) -> None:
        nodes = [helper.make_node("Gather", ["table", "x"], ["advice"])]
        x: tuple[int, list[int | str]] = (TensorProto.INT64, ["batch", 1])
        advice: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["batch", 1])
        model = make_model(nodes, {"x": x}, {"advice": advice}, {"table": np.ones(size, np.float32)})
        write_onnx(repository, "table", model)

    def write_mixture(self, repository: Path) -> None:
        nodes = [
            helper.make_node("Cast", ["cost"], ["number"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["users", "number"], ["sum"]),
            helper.make_node("Where", ["hot", "sum", "zero"], ["advice"]),
        ]
        inputs: dict[str, tuple[int, list[int | str]]] = {
            spec.name: (ONNX_TYPES[spec.type], ["batch"]) for spec in MIXTURE
        }
        advice: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["batch"])
        model = make_model(nodes, inputs, {"advice": advice}, {"zero": np.zeros((), np.float32)})
        write_onnx(repository, "mixture", model)

    def write_network(self, repository: Path, advice: TensorSpec = DECISION) -> None:
        write_exported(repository, "network", "onnx", advice)

    def test_an_execution_provider_that_is_not_there_is_refused_with_those_that_are(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        add_setting(tmp_path, "difference", 'providers = ["AbsentExecutionProvider", "CPUExecutionProvider"]')
        with pytest.raises(
            PreconditionError, match=r"'AbsentExecutionProvider'; .*onnxruntime has .*CPUExecutionProvider"
        ):
            load(tmp_path, "difference")

    def test_execution_providers_get_their_options(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        add_setting(tmp_path, "difference", "provider_options.CPUExecutionProvider.use_arena = false")
        assert load(tmp_path, "difference").batched

    def test_options_of_a_provider_that_is_not_asked_for_are_refused(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        add_setting(tmp_path, "difference", "provider_options.CUDAExecutionProvider.device_id = 1")
        with pytest.raises(PreconditionError, match=r"CUDAExecutionProvider; settings\.providers does not"):
            load(tmp_path, "difference")

    def test_a_file_outside_of_the_version_is_refused(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        model = tmp_path / "difference" / "1" / "model.onnx"
        model.rename(tmp_path / "model.onnx")
        add_setting(tmp_path, "difference", 'file = "../../model.onnx"')
        with pytest.raises(PreconditionError, match="outside"):
            load(tmp_path, "difference")

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

    @pytest.mark.parametrize("dims", [["batch", 9], ["batch", "n"], [9]])
    def test_vectors_are_packed_beside_scalars_of_another_type(self, tmp_path: Path, dims: list[int | str]) -> None:
        node = helper.make_node("Identity", ["x"], ["advice"])
        spec = (TensorProto.FLOAT, dims)
        embedding = "{name = 'callee_embedding', type = 'float', shape = [3]}"
        caller = "{name = 'caller_embedding', type = 'float', shape = [1, 3]}"
        toml = f"[settings.pack.x]\nfeatures = ['users', {embedding}, {caller}, 'height', 'flag']"
        toml = toml.replace("'flag'", "{name = 'flag', type = 'bool'}")
        write_onnx(tmp_path, "packed", make_model([node], {"x": spec}, {"advice": spec}), toml)
        model = load(tmp_path, "packed")
        features = model.signature.features
        assert features is not None
        assert [str(spec) for spec in features.specs] == [
            "users: int64_t[1]",
            "callee_embedding: float[3]",
            "caller_embedding: float[1, 3]",
            "height: int64_t[1]",
            "flag: bool[1]",
        ]
        given: dict[str, Any] = {
            "users": 1,
            "callee_embedding": [2, 3, 4],
            "caller_embedding": [[5, 6, 7]],
            "height": 8,
            "flag": True,
        }
        rows = [pack(features, given)] if dims == [9] else [pack(features, {**given, "users": n}) for n in range(1, 70)]
        (advice,) = [model.signature.advice]
        assert advice is not None
        for count in (1, len(rows)):
            got = evaluate(model, join(features, rows[:count]), advice)["advice"]
            assert [list(row) if advice.fixed else row.tolist() for row in got] == [
                [number, 2, 3, 4, 5, 6, 7, 8, 1] for number in range(1, count + 1)
            ]

    @pytest.mark.parametrize("dims", [["batch"], []])
    @pytest.mark.parametrize("beside", [["batch", 2], ["batch", "n"]])
    def test_a_scalar_is_packed_beside_an_input_of_any_shape(
        self, tmp_path: Path, dims: list[int | str], beside: list[int | str]
    ) -> None:
        beside = beside if dims else beside[1:]
        nodes = [
            helper.make_node("ReduceSum", ["more", "last"], ["sum"], keepdims=0),
            helper.make_node("Add", ["x", "sum"], ["advice"]),
        ]
        inputs = {"x": (TensorProto.FLOAT, dims), "more": (TensorProto.FLOAT, beside)}
        model = make_model(nodes, inputs, {"advice": (TensorProto.FLOAT, dims)}, {"last": np.array([-1], np.int64)})
        write_onnx(tmp_path, "packed", model, '[settings.pack.x]\nfeatures = ["cost"]')
        loaded, spec = load(tmp_path, "packed"), TensorSpec("advice", ElementType.FLOAT, ())
        features = loaded.signature.features
        assert features is not None
        rows = [pack(features, {"cost": number, "more": np.array([1, 2], np.float32)}) for number in (3, 4)]
        for count in (1, 2) if dims else (1,):
            assert evaluate(loaded, join(features, rows[:count]), spec)["advice"].tolist() == [6.0, 7.0][:count]

    def test_vectors_of_another_size_than_the_input_are_refused(self, tmp_path: Path) -> None:
        node = helper.make_node("Identity", ["x"], ["advice"])
        spec: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["batch", 9])
        toml = "[settings.pack.x]\nfeatures = ['users', {name = 'embedding', type = 'float', shape = [75]}]"
        write_onnx(tmp_path, "packed", make_model([node], {"x": spec}, {"advice": spec}), toml)
        with pytest.raises(PreconditionError, match=r"packs 2 features, 76 elements, into the input x: float\[9\]"):
            load(tmp_path, "packed")

    def test_batch_in_the_settings_is_named_as_the_cure_of_a_packed_input_that_is_open(self, tmp_path: Path) -> None:
        # As the converters of LightGBM and CatBoost write their models.
        node = helper.make_node("Identity", ["x"], ["advice"])
        x: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["", 2])
        advice: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["N", 2])
        toml = "[settings.pack.x]\nfeatures = ['cost', 'users']"
        write_onnx(tmp_path, "packed", make_model([node], {"x": x}, {"advice": advice}), toml)
        with pytest.raises(PreconditionError, match=r"into the input x: float\[-1, 2\].*set `batch = true`"):
            load(tmp_path, "packed")
        (tmp_path / "packed" / "policy.toml").write_text(f'backend = "onnx"\n[settings]\nbatch = true\n{toml}')
        assert load(tmp_path, "packed").batched

    def test_labels_whose_file_says_that_there_is_one_are_given_in_batches(self, tmp_path: Path) -> None:
        # As LightGBM's converter writes a classifier.
        node = helper.make_node("ArgMax", ["x"], ["label"], axis=1, keepdims=0)
        x: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["N", 2])
        label: tuple[int, list[int | str]] = (TensorProto.INT64, [1])
        write_onnx(tmp_path, "labels", make_model([node], {"x": x}, {"label": label}), "[settings]\nbatch = true")
        model, spec = load(tmp_path, "labels"), TensorSpec("label", ElementType.INT64, ())
        assert model.signature.advice == spec
        assert probe(model, must_answer=True).least == 1
        features = Layout((TensorSpec("x", ElementType.FLOAT, (2,)),))
        rows = [pack(features, {"x": [1, number]}) for number in (0, 2, 3)]
        assert evaluate(model, join(features, rows), spec)["label"].tolist() == [0, 1, 1]

    def test_zipmap_is_named_as_the_cause_of_an_output_that_is_no_tensor(self, tmp_path: Path) -> None:
        # As scikit-learn's converter writes a classifier by default.
        node = helper.make_node("ZipMap", ["x"], ["odds"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])
        odds = helper.make_sequence_type_proto(
            helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
        )
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])
        graph = helper.make_graph([node], "odds", [x], [helper.make_value_info("odds", odds)])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
        write_onnx(tmp_path, "odds", helper.make_model(graph, opset_imports=opsets, ir_version=9))
        with pytest.raises(PreconditionError, match=r"seq\(map\(.*zipmap=False"):
            load(tmp_path, "odds")

    def test_types_that_are_kept_are_named_as_the_cure_of_a_float16_input(self, tmp_path: Path) -> None:
        node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["batch", 2])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])
        graph = helper.make_graph([node], "half", [x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        write_onnx(tmp_path, "half", model)
        with pytest.raises(PreconditionError, match=r"x has the type tensor\(float16\); .*keep_io_types=True"):
            load(tmp_path, "half")

    def test_a_missing_file_of_tensors_is_named_as_the_model_names_it(self, tmp_path: Path) -> None:
        self.write_table(tmp_path, 64)
        file = tmp_path / "table" / "1" / "model.onnx"
        onnx.save(onnx.load(file), file, save_as_external_data=True, location="weights.bin", size_threshold=0)
        load(tmp_path, "table").close()
        (file.parent / "weights.bin").unlink()
        with pytest.raises(PreconditionError, match=r"the version's folder has no 'weights\.bin'"):
            load(tmp_path, "table")

    @pytest.mark.parametrize("head", ["", "[head]"])
    def test_batch_in_the_settings_is_named_as_the_cure_of_an_output_that_is_open(
        self, tmp_path: Path, head: str
    ) -> None:
        node = helper.make_node("Identity", ["x"], ["y"])
        x: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["batch", 2])
        y: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["unk__6", 2])
        write_onnx(tmp_path, "open", make_model([node], {"x": x}, {"y": y}), head)
        decision = ADVICE if head else TensorSpec("y", ElementType.FLOAT, (2,))
        features = [TensorSpec("x", ElementType.FLOAT, (2,))]

        def ask() -> object:
            target = f"inprocess:{tmp_path}"
            with open_runner(target, policy="open", features=features, advice=decision) as runner:
                runner["x"] = np.array([1, 2], np.float32)
                return runner.evaluate()

        with pytest.raises(
            PolicyBridgeError, match=r"gives y: float\[-1, 2\].*counts observations, set `batch = true`"
        ):
            ask()
        add_setting(tmp_path, "open", "batch = true")
        if head:
            toml = tmp_path / "open" / "policy.toml"
            toml.write_text('backend = "onnx"\n[settings]\nbatch = true\n[head]\n')
        assert np.array_equal(np.asarray(ask()), 1 if head else [1, 2])

    @pytest.mark.parametrize("shape", [(1,), ()])
    def test_a_model_without_a_dimension_for_batches_is_asked_singly(
        self, tmp_path: Path, shape: tuple[int, ...]
    ) -> None:
        node = helper.make_node("Add", ["x", "x"], ["advice"])
        spec: tuple[int, list[int | str]] = (TensorProto.INT64, list(shape))
        write_onnx(tmp_path, "twice", make_model([node], {"x": spec}, {"advice": spec}))
        model = load(tmp_path, "twice")
        assert (model.batched, probe(model).most) == (False, 1)
        values = pack(Layout((TensorSpec("x", ElementType.INT64, shape),)), {"x": 21})
        assert evaluate(model, values, TensorSpec("advice", ElementType.INT64, shape))["advice"].item() == 42

    def test_one_of_several_outputs_is_named_in_the_settings(self, tmp_path: Path) -> None:
        nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Neg", ["x"], ["minus"])]
        spec: tuple[int, list[int | str]] = (TensorProto.INT64, ["batch", 1])
        model = make_model(nodes, {"x": spec}, {"same": spec, "minus": spec})
        write_onnx(tmp_path, "both", model)
        write_onnx(tmp_path, "one", model, '[settings]\noutput = "minus"')
        with pytest.raises(PreconditionError, match=r"outputs, same, minus; .* `output = .same.` under"):
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

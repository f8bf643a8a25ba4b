"""The backends tensorflow and litert by the contract of all, and what ml-compiler-opt saves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from policybridge_core.errors import PreconditionError
from policybridge_demo.export.policy import policy_folder
from policybridge_serdes import ElementType, Layout, TensorSpec, pack
from policybridge_server.backends.contract import Model, WeightsBackend, load_backend
from tests.frameworks import ADVICE as DECISION
from tests.frameworks import expected_decisions, feature_names, llvm_observations, require, write_network
from tests.server.backends.backends import ADVICE, MIXTURE, TensorContract, add_setting, evaluate, load

require("tensorflow")
require("ai_edge_litert")

import tensorflow as tf  # noqa: E402

from policybridge_demo.export.tensorflow import save_litert, save_model  # noqa: E402
from tests.frameworks_tensorflow import write_ml_compiler_opt_network  # noqa: E402

NUMBERS = [kind for kind in ElementType if not kind.is_text]


class Contract(TensorContract):
    """What both have in common: their artifacts are made from functions of TensorFlow."""

    save: Callable[..., None]

    def add(self, repository: Path, name: str, function: Any, specs: dict[str, Any]) -> Path:
        folder = policy_folder(repository, name, self.backend)
        type(self).save(function, specs, folder)
        return folder

    def write_identity(self, repository: Path, spec: TensorSpec) -> None:
        dtype = tf.string if spec.type.is_text else tf.dtypes.as_dtype(spec.type.dtype)
        shape = [None, *(None if dim < 0 else dim for dim in spec.shape)]
        self.add(repository, "same", lambda x: {"advice": tf.identity(x)}, {"x": tf.TensorSpec(shape, dtype)})

    def write_difference(self, repository: Path) -> None:
        spec = tf.TensorSpec([None, 1], tf.int64)
        self.add(repository, "difference", lambda b, a: {"advice": a - b}, {"b": spec, "a": spec})

    def write_table(self, repository: Path, size: int) -> None:
        table = tf.Variable(tf.ones(size))
        spec = tf.TensorSpec([None, 1], tf.int64)
        self.add(repository, "table", lambda x: {"advice": tf.gather(table, x)}, {"x": spec})

    def write_mixture(self, repository: Path) -> None:
        def advise(hot: Any, users: Any, cost: Any) -> dict[str, Any]:
            return {"advice": tf.where(hot, users + tf.cast(cost, tf.float32), 0)}

        specs = {spec.name: tf.TensorSpec([None], tf.dtypes.as_dtype(spec.type.dtype)) for spec in MIXTURE}
        self.add(repository, "mixture", advise, specs)

    def test_weights_alone_are_not_taken(self) -> None:
        assert not isinstance(load_backend(self.backend), WeightsBackend)

    def test_one_of_several_outputs_is_named_in_the_settings(self, tmp_path: Path) -> None:
        spec = tf.TensorSpec([None, 1], tf.int64)
        self.add(tmp_path, "both", lambda x: {"same": tf.identity(x), "minus": -x}, {"x": spec})
        with pytest.raises(
            PreconditionError, match=r"outputs, (minus, same|same, minus); .* `output = .(minus|same).`"
        ):
            load(tmp_path, "both")
        values = pack(Layout((TensorSpec("x", ElementType.INT64),)), {"x": 5})
        add_setting(tmp_path, "both", 'output = "minus"')
        assert evaluate(load(tmp_path, "both"), values, ADVICE)["advice"].item() == -5

    def test_a_policy_of_ml_compiler_opt_loads_as_it_is(self, tmp_path: Path) -> None:
        write_ml_compiler_opt_network(tmp_path, "saved", self.backend)
        model = load(tmp_path, "saved")
        assert (model.batched, model.signature.advice) == (False, DECISION)
        assert model.signature.features is not None
        assert sorted(model.signature.features.by_name) == sorted(feature_names())
        given = [decide(model, row) for row in range(200)]
        assert given == expected_decisions()[:200].tolist()

    def test_an_output_spec_that_is_none_is_refused_by_its_name(self, tmp_path: Path) -> None:
        write_ml_compiler_opt_network(tmp_path, "saved", self.backend)
        (tmp_path / "saved" / "1" / "output_spec.json").write_text('[{"logging_name": "x"}]')
        with pytest.raises(PreconditionError, match=r"output_spec\.json is no list .* tensor_spec"):
            load(tmp_path, "saved")


def decide(model: Model, row: int) -> int:
    assert model.signature.features is not None
    observation = llvm_observations()[row]
    tensors = {name: observation[name] for name in model.signature.features.by_name}
    advice = evaluate(model, pack(model.signature.features, tensors), DECISION)
    return int(advice[DECISION.name].item())


class TestTensorflow(Contract):
    types: ClassVar = [*NUMBERS, ElementType.BYTES]
    backend = "tensorflow"
    artifact = "saved_model.pb"
    # On some processors its kernels compute the last rows of a batch otherwise; then nothing is batched.
    kernels_differ = True
    save = staticmethod(save_model)

    def write_network(self, repository: Path, advice: TensorSpec = DECISION) -> None:
        write_network(repository, "network", self.backend, advice)

    def test_a_signature_that_is_not_there_is_refused_with_those_that_are(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        add_setting(tmp_path, "difference", 'signature = "act"')
        with pytest.raises(PreconditionError, match="no signature 'act'; there are serving_default"):
            load(tmp_path, "difference")

    def test_control_flow_runs(self, tmp_path: Path) -> None:
        def function(x: Any) -> Any:
            doubled = tf.while_loop(lambda count, _: count < 3, lambda count, y: (count + 1, y * 2), (0, x))[1]
            return {"advice": tf.cond(tf.reduce_sum(doubled) > 10, lambda: doubled + 1, lambda: doubled)}

        self.add(tmp_path, "loop", function, {"x": tf.TensorSpec([None, 1], tf.int64)})
        values = pack(Layout((TensorSpec("x", ElementType.INT64),)), {"x": 5})
        assert evaluate(load(tmp_path, "loop"), values, ADVICE)["advice"].item() == 41

    @pytest.mark.parametrize(
        ("operation", "message"),
        [
            (lambda x: tf.io.write_file("written-by-a-policy", tf.io.serialize_tensor(x)), "WriteFile"),
            (lambda x: tf.py_function(lambda y: y, [x], tf.int64), "EagerPyFunc"),
            (lambda x: tf.print(x, output_stream="file://written-by-a-policy"), "PrintV2"),
            (lambda x: tf.raw_ops.Save(filename="written", tensor_names=["x"], data=[x]), "Save"),
        ],
    )
    def test_a_model_that_does_more_than_compute_is_refused(
        self, tmp_path: Path, operation: Callable[[Any], Any], message: str
    ) -> None:
        def function(x: Any) -> Any:
            with tf.control_dependencies([operation(x)]):
                return {"advice": tf.identity(x)}

        self.add(tmp_path, "writing", function, {"x": tf.TensorSpec([None, 1], tf.int64)})
        with pytest.raises(PreconditionError, match=rf"operator {message} .* does more than compute"):
            load(tmp_path, "writing")

    def test_a_model_of_unknown_rank_is_refused(self, tmp_path: Path) -> None:
        self.add(tmp_path, "any", lambda x: {"advice": tf.identity(x)}, {"x": tf.TensorSpec(None, tf.int64)})
        with pytest.raises(PreconditionError, match="x has no known number of dimensions"):
            load(tmp_path, "any")


class TestLitert(Contract):
    types: ClassVar = NUMBERS
    backend = "litert"
    artifact = "model.tflite"
    is_slow_to_write = True
    save = staticmethod(save_litert)

    def write_network(self, repository: Path, advice: TensorSpec = DECISION) -> None:
        write_network(repository, "network", self.backend, advice)

    def test_the_decision_is_the_tensor_that_output_spec_names(self, tmp_path: Path) -> None:
        write_ml_compiler_opt_network(tmp_path, "saved", self.backend)
        file = tmp_path / "saved" / "1" / "output_spec.json"
        spec = json.loads(file.read_text())
        spec[0]["tensor_spec"]["port"] = 7
        file.write_text(json.dumps(spec))
        with pytest.raises(PreconditionError, match="'StatefulPartitionedCall:7'; the outputs are Stateful"):
            load(tmp_path, "saved")

    def test_batches_of_changing_sizes_are_answered(self, tmp_path: Path) -> None:
        self.write_network(tmp_path)
        model = load(tmp_path, "network")
        sizes = [1, 5, 2, 64, 1, 256, 3]
        given = [evaluate(model, llvm_observations()[:size], DECISION) for size in sizes]
        for size, advice in zip(sizes, given, strict=True):
            assert np.array_equal(advice[DECISION.name].reshape(-1), expected_decisions()[:size])

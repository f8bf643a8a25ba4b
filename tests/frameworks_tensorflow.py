"""Policies as ml-compiler-opt saves them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from policybridge_demo.export.policy import policy_folder
from policybridge_demo.export.tensorflow import save_litert, save_model, tensorflow_network
from tests.frameworks import ADVICE, feature_names, network

_EXTRA = {
    "discount": tf.TensorSpec([1], tf.float32),
    "reward": tf.TensorSpec([1], tf.float32),
    "step_type": tf.TensorSpec([1], tf.int32),
}


def write_ml_compiler_opt_network(repository: Path, name: str, backend: str) -> None:
    """Write it as ml-compiler-opt saves a policy: single observations, TF-Agents' own inputs, ``output_spec.json``."""
    specs = {feature: tf.TensorSpec([1], tf.int64) for feature in feature_names()} | _EXTRA
    folder = policy_folder(repository, name, backend)
    save = save_model if backend == "tensorflow" else save_litert
    save(_action(), specs, folder, "action")
    tensor = {"name": "StatefulPartitionedCall", "port": 0, "type": "int64_t", "shape": [1]}
    spec = [{"logging_name": ADVICE.name, "tensor_spec": tensor}]
    (folder / "output_spec.json").write_text(json.dumps(spec))


def _action() -> Callable[..., Any]:
    evaluate = tensorflow_network(network())

    def action(**features: Any) -> Any:
        observation = tf.stack([tf.cast(features[name], tf.float32) for name in feature_names()], axis=1)
        # Every input must be used: the converter to TFLite leaves out what is not.
        rest = sum(tf.reduce_sum(tf.cast(features[name], tf.int64)) for name in _EXTRA)
        return {ADVICE.name: evaluate(observation)[:, 0] + rest}

    return action

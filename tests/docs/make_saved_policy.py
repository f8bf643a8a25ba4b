"""Makes given/saved_policy, as ml-compiler-opt saves a policy, by TensorFlow, which the tests of pages do without.

``python -m tests.docs.make_saved_policy``
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import tensorflow as tf

from policybridge_demo.export.tensorflow import save_litert

_FOLDER: Final = Path(__file__).parent / "given" / "saved_policy"
_FEATURES: Final = ("cost_estimate", "callee_users", "callsite_height")
_SPECS: Final = {name: tf.TensorSpec([1], tf.int64) for name in _FEATURES} | {
    "discount": tf.TensorSpec([1], tf.float32),
    "reward": tf.TensorSpec([1], tf.float32),
    "step_type": tf.TensorSpec([1], tf.int32),
}


def _action() -> Callable[..., Any]:
    """Inline what costs less than 20; the rest is used because the converter leaves out what is not.

    A variable makes the output's tensor ``StatefulPartitionedCall``, as a network's are.
    """
    threshold = tf.Variable(20.0)

    def action(**features: Any) -> Any:
        unused = sum(0 * tf.cast(features[name], tf.float32) for name in _SPECS if name != "cost_estimate")
        cost = tf.cast(features["cost_estimate"], tf.float32) + unused
        return {"inlining_decision": tf.cast(cost < threshold, tf.int64)}

    return action


if __name__ == "__main__":
    _FOLDER.mkdir(parents=True, exist_ok=True)
    save_litert(_action(), _SPECS, _FOLDER, "action")
    tensor = {"name": "StatefulPartitionedCall", "port": 0, "type": "int64_t", "shape": [1]}
    spec = [{"logging_name": "inlining_decision", "tensor_spec": tensor}]
    (_FOLDER / "output_spec.json").write_text(json.dumps(spec) + "\n", encoding="utf-8")

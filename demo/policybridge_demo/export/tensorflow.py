"""A network as TensorFlow stores it: a SavedModel, or a .tflite file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tensorflow as tf

from policybridge_demo.export.network import Network

Specs = Mapping[str, Any]
"""A ``tf.TensorSpec`` for each input."""


def write_saved_model(network: Network, folder: Path) -> None:
    """Write ``saved_model.pb`` and ``variables/``."""
    save_model(_named(network), _specs(network), folder)


def write_litert(network: Network, folder: Path) -> None:
    """Write ``model.tflite``."""
    save_litert(_named(network), _specs(network), folder)


def tensorflow_network(network: Network) -> Callable[[Any], Any]:
    """Make a function of a tensor, float [n, features], that computes ``network``."""
    layers = [(tf.Variable(layer.weight.T), tf.Variable(layer.bias)) for layer in network.layers]

    def evaluate(observation: Any) -> Any:
        current = tf.clip_by_value(observation, -network.limit, network.limit)
        for number, (weight, bias) in enumerate(layers):
            current = tf.matmul(current, weight) + bias
            current = tf.nn.relu(current) if number < len(layers) - 1 else current
        return tf.argmax(current, axis=1)[:, tf.newaxis] if network.decide else current

    return evaluate


def _named(network: Network) -> Callable[..., Any]:
    evaluate = tensorflow_network(network)
    return lambda observation: {network.advice: evaluate(observation)}


def _specs(network: Network) -> Specs:
    return {"observation": tf.TensorSpec([None, network.sizes[0]], tf.float32)}


def save_model(function: Callable[..., Any], specs: Specs, folder: Path, signature: str = "serving_default") -> None:
    """Save ``function``, whose inputs and outputs are tensors by name, as a SavedModel."""
    module = tf.Module()
    module.function = tf.function(function, autograph=False)
    concrete = module.function.get_concrete_function(**specs)
    # The module has to hold the variables, so that loading restores them.
    module.held = list(concrete.variables)
    tf.saved_model.save(module, str(folder), signatures={signature: concrete})


def save_litert(function: Callable[..., Any], specs: Specs, folder: Path, signature: str = "serving_default") -> None:
    """Convert ``function``, as for `save_model`, to ``model.tflite``."""
    with TemporaryDirectory() as saved:
        save_model(function, specs, Path(saved), signature)
        converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=[signature])
        (folder / "model.tflite").write_bytes(converter.convert())

"""Whether to inline a call, by a network in JAX; ``weights.npz`` beside this file holds its weights."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

FEATURES = (
    "cost_estimate",
    "threshold",
    "callsite_cost",
    "last_call_to_static_bonus",
    "constant_args",
    "dead_blocks",
    "is_multiple_blocks",
    "callee_basic_block_count",
)


def logits(weights, observations):
    """Score "leave it" and "inline it" for ``observations``, shape [n, 8]: gives [n, 2]."""
    # Costs span five orders of magnitude, on both sides of zero.
    current = jnp.sign(observations) * jnp.log1p(jnp.abs(observations))
    # Logarithms hide the difference between cost and threshold, which decides.
    margin = (observations[:, 1:2] - observations[:, :1]) / 100
    current = jnp.concatenate([current, jnp.tanh(margin), jnp.clip(margin, -5, 5)], axis=1)
    for weight, bias in weights[:-1]:
        current = jax.nn.relu(current @ weight + bias)
    weight, bias = weights[-1]
    return current @ weight + bias


class Policy:
    """The server makes one object of this class for each version."""

    def __init__(self):
        with np.load(Path(__file__).with_name("weights.npz"), allow_pickle=False) as arrays:
            layers = [(arrays[f"w{layer}"], arrays[f"b{layer}"]) for layer in range(len(arrays.files) // 2)]
        self._decide = jax.jit(lambda observation: logits(layers, observation[None]).argmax())
        # Compile now, so that the first session does not wait for it.
        self._decide(np.zeros(len(FEATURES), np.float32)).block_until_ready()

    def evaluate(self, observation, session):  # noqa: ARG002 - this policy remembers nothing
        """Give 1 to inline the call and 0 to leave it."""
        return int(self._decide(np.array([observation[name].item() for name in FEATURES], np.float32)))

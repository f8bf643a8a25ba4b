"""Learn LLVM's own inlining decisions and write them as the next version of the policy ``inliner-jax``.

    python examples/jax/train.py [OBSERVATIONS.npz]

The file holds a column per feature, and ``inlining_default``, LLVM's decision.
"""

import runpy
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

HERE = Path(__file__).parent
POLICY = HERE / "policies" / "inliner-jax"
OBSERVATIONS = HERE.parent.parent / "tests" / "data" / "observations.npz"
HEIGHTS = (32, 16, 2)
STEPS = 500


def main() -> None:
    """Train on every other observation, print how often the decisions on the rest are LLVM's, and write the version."""
    policy = runpy.run_path(str(POLICY / "1" / "policy.py"))
    with np.load(sys.argv[1] if len(sys.argv) > 1 else OBSERVATIONS, allow_pickle=False) as columns:
        values = np.stack([columns[name] for name in policy["FEATURES"]], axis=1).astype(np.float32)
        wanted = (columns["inlining_default"] != 0).astype(np.int32)
    weights = train(policy["logits"], values[::2], wanted[::2])
    agreed = (policy["logits"](weights, values[1::2]).argmax(axis=1) == wanted[1::2]).mean()
    print(f"agrees with LLVM on {agreed:.2%} of {len(values) // 2} observations that it has not seen; {write(weights)}")


def train(logits, values, wanted):
    """Minimise the cross entropy by gradient descent with Adam's step sizes."""

    def loss(weights):
        scores = jax.nn.log_softmax(logits(weights, values))
        return -jnp.take_along_axis(scores, wanted[:, None], axis=1).mean()

    @jax.jit
    def step(count, weights, first, second):
        gradients = jax.grad(loss)(weights)
        first = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, first, gradients)
        second = jax.tree.map(lambda old, new: 0.999 * old + 0.001 * new * new, second, gradients)
        rate = 0.01 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        return jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), weights, first, second), first, second

    weights = initial(values.shape[1] + 2)
    first = second = jax.tree.map(jnp.zeros_like, weights)
    for count in range(1, STEPS + 1):
        weights, first, second = step(count, weights, first, second)
    return weights


def initial(width: int):
    """Give small random weights, a pair of matrix and bias per layer."""
    generator, layers = np.random.default_rng(0), []
    for height in HEIGHTS:
        weight = generator.normal(size=(width, height)) * np.sqrt(2 / width)
        layers.append((jnp.asarray(weight, jnp.float32), jnp.zeros(height)))
        width = height
    return layers


def write(weights) -> Path:
    """Write the next version, and give its folder."""
    numbers = [int(folder.name) for folder in POLICY.iterdir() if folder.name.isdecimal()]
    # A version's files never change. A folder without weights is no version yet.
    complete = (POLICY / "1" / "weights.npz").exists()
    folder = POLICY / str(max(numbers) + 1 if complete else 1)
    folder.mkdir(exist_ok=True)
    if complete:
        shutil.copy(POLICY / "1" / "policy.py", folder)
    arrays = {}
    for layer, (weight, bias) in enumerate(weights):
        arrays |= {f"w{layer}": np.asarray(weight), f"b{layer}": np.asarray(bias)}
    np.savez_compressed(folder / "weights.npz", **arrays)
    return folder


if __name__ == "__main__":
    main()

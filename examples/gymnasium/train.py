"""Train an inliner with Stable-Baselines3's PPO: python train.py CORPUS [--only PROJECT] [--steps N].

The environment's reward comes in an episode's last step, for all of its decisions at once. PPO learns faster from the
credit of each decision, which comes in the same step's info: a callback puts it in the place of the rewards.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

from policybridge_core.errors import PolicyBridgeError
from policybridge_train.corpus.description import Corpus
from policybridge_train.environments.inlining import InlineForSize


class Deviations(gymnasium.Wrapper[npt.NDArray[np.float32], Any, Any, Any]):
    """0 does what LLVM would do, 1 the opposite; the features are one vector of logarithms, since they are counts."""

    def __init__(self, environment: gymnasium.Env[Any, Any], features: int) -> None:
        super().__init__(environment)
        self.observation_space = gymnasium.spaces.Box(-50, 50, (features,), np.float32)
        self._default = 0

    def reset(self, **arguments: Any) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Reset; see `gymnasium.Env`."""
        observation, info = self.env.reset(**arguments)
        return self._seen(observation), info

    def step(self, action: Any) -> tuple[npt.NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        """Take LLVM's own decision, or the opposite one."""
        observation, reward, terminated, truncated, info = self.env.step(int(action) ^ self._default)
        return self._seen(observation), reward, terminated, truncated, info

    def _seen(self, observation: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        self._default = int(observation["inlining_default"][0])
        values = np.concatenate(list(observation.values())).astype(np.float64)
        return (np.sign(values) * np.log1p(np.abs(values))).astype(np.float32)


class CreditPerDecision(BaseCallback):
    """Puts the credit of each decision in the place of its reward; the discount has to be 0.

    What is not credited when a rollout ends, because its episode goes on, teaches nothing.
    """

    def _on_rollout_start(self) -> None:
        buffer = self.model.rollout_buffer
        self._credit = np.full((buffer.buffer_size, buffer.n_envs), np.nan, np.float32)

    def _on_step(self) -> bool:
        end = self.model.rollout_buffer.pos + 1
        for column, info in enumerate(self.locals["infos"]):
            credit = np.asarray(info.get("credit", ()), np.float32)[-end:]
            self._credit[end - len(credit) : end, column] = np.clip(credit, -200, 200) / 100
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer
        buffer.returns = np.where(np.isnan(self._credit), buffer.values, self._credit)
        buffer.advantages = buffer.returns - buffer.values


def make(corpus: Path, modules: Sequence[str]) -> gymnasium.Env[Any, Any]:
    """Make the environment with its wrapper."""
    environment = InlineForSize(corpus, modules=modules)
    return Deviations(environment, len(environment.observation_space))


def compiled(model: PPO, environment: gymnasium.Env[Any, Any], module: str) -> tuple[int, int]:
    """Compile a module by the policy's likeliest decisions; give the bytes of text by default, and by the policy."""
    observation, info = environment.reset(options={"module": module})
    over = False
    while not over:
        action, _ = model.predict(observation, deterministic=True)
        observation, _, terminated, truncated, info = environment.step(action)
        over = terminated or truncated
    return info["default_text"], info["text"]


def totals(model: PPO, environment: gymnasium.Env[Any, Any], modules: Sequence[str]) -> tuple[int, int]:
    """Add up the modules; see `compiled`."""
    default = policy = 0
    for name in modules:
        try:
            one, other = compiled(model, environment, name)
        except PolicyBridgeError:  # the compiler asks nothing about it
            continue
        default, policy = default + one, policy + other
    return default, policy


def main() -> None:
    """Train, and compile all modules by what was learnt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", metavar="PROJECT", help="train on this project's modules alone")
    parser.add_argument("--steps", type=int, default=8192)
    parser.add_argument("--rollout", type=int, default=1024, help="steps of each of the two environments")
    arguments = parser.parse_args()
    modules = Corpus.open(arguments.corpus).modules
    names = [module.name for module in modules if arguments.only in (None, module.project)]

    several = SubprocVecEnv([partial(make, arguments.corpus, names)] * 2, start_method="fork")
    sizes = {"n_steps": arguments.rollout, "batch_size": min(256, arguments.rollout)}
    model = PPO("MlpPolicy", several, gamma=0, gae_lambda=0, seed=1, **sizes)
    # Begin near LLVM's own decisions: one in eight is another.
    model.policy.action_net.bias.data = torch.tensor([1.0, -1.0])
    model.learn(arguments.steps, callback=CreditPerDecision())
    several.close()

    environment = make(arguments.corpus, names)
    default, policy = totals(model, environment, names)
    environment.close()
    print(f"text: {default} bytes by LLVM, {policy} by the policy ({policy / default - 1:+.2%})")


if __name__ == "__main__":
    main()

"""Common code of the examples in this folder: their environment, and the evaluation of a policy."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from policybridge_core.errors import PolicyBridgeError
from policybridge_train.corpus.description import Corpus
from policybridge_train.environments.inlining import InlineForSize

Decide = Callable[[npt.NDArray[np.float32]], int]
"""Gives the action for an observation of `Deviations`."""


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


def credits_of(info: dict[str, Any]) -> npt.NDArray[np.float32]:
    """Give each decision's reward from the ``info`` of an episode's last step: bytes saved, over 100 and cut off."""
    return np.clip(np.asarray(info.get("credit", ()), np.float32), -200, 200) / 100


def make(corpus: Path, modules: Sequence[str]) -> gymnasium.Env[Any, Any]:
    """Make the environment with its wrapper."""
    environment = InlineForSize(corpus, modules=modules)
    return Deviations(environment, len(environment.observation_space))


def compiled(decide: Decide, environment: gymnasium.Env[Any, Any], module: str) -> tuple[int, int]:
    """Compile a module by a policy's decisions; give the bytes of text by default, and by the policy."""
    observation, info = environment.reset(options={"module": module})
    over = False
    while not over:
        observation, _, terminated, truncated, info = environment.step(decide(observation))
        over = terminated or truncated
    return info["default_text"], info["text"]


def totals(decide: Decide, environment: gymnasium.Env[Any, Any], modules: Sequence[str]) -> tuple[int, int]:
    """Add up the modules; see `compiled`."""
    default = policy = 0
    for name in modules:
        try:
            one, other = compiled(decide, environment, name)
        except PolicyBridgeError:  # the compiler asks nothing about it
            continue
        default, policy = default + one, policy + other
    return default, policy


def report(decide: Decide, corpus: Path, modules: Sequence[str]) -> None:
    """Compile the modules by a policy, and print the change of their text."""
    environment = make(corpus, modules)
    default, policy = totals(decide, environment, modules)
    environment.close()
    print(f"text: {default} bytes by LLVM, {policy} by the policy ({policy / default - 1:+.2%})")


def chosen(corpus: Path, project: str | None) -> list[str]:
    """Give the names of a corpus's modules; those of one project, if it is named."""
    return [module.name for module in Corpus.open(corpus).modules if project in (None, module.project)]

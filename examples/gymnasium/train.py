"""Train an inliner with Stable-Baselines3's PPO: python train.py CORPUS [--only PROJECT] [--steps N].

The environment's reward comes in an episode's last step, for all of its decisions at once. PPO learns faster from the
credit of each decision, which comes in the same step's info: a callback puts it in the place of the rewards.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import torch
from inliner import chosen, credits_of, make, report
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv


class CreditPerDecision(BaseCallback):
    """Puts the credit of each decision in the place of its reward; the discount has to be 0.

    Steps without a credit, because their episode goes on after the rollout, have no effect.
    """

    def _on_rollout_start(self) -> None:
        buffer = self.model.rollout_buffer
        self._credit = np.full((buffer.buffer_size, buffer.n_envs), np.nan, np.float32)

    def _on_step(self) -> bool:
        end = self.model.rollout_buffer.pos + 1
        for column, info in enumerate(self.locals["infos"]):
            credit = credits_of(info)[-end:]
            self._credit[end - len(credit) : end, column] = credit
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer
        buffer.returns = np.where(np.isnan(self._credit), buffer.values, self._credit)
        buffer.advantages = buffer.returns - buffer.values


def main() -> None:
    """Train, and compile all modules by the trained policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", metavar="PROJECT", help="train on this project's modules alone")
    parser.add_argument("--steps", type=int, default=8192)
    parser.add_argument("--rollout", type=int, default=1024, help="steps of each of the two environments")
    arguments = parser.parse_args()
    names = chosen(arguments.corpus, arguments.only)

    several = SubprocVecEnv([partial(make, arguments.corpus, names)] * 2, start_method="fork")
    sizes = {"n_steps": arguments.rollout, "batch_size": min(256, arguments.rollout)}
    model = PPO("MlpPolicy", several, gamma=0, gae_lambda=0, seed=1, **sizes)
    # Begin near LLVM's own decisions: one in eight is another.
    model.policy.action_net.bias.data = torch.tensor([1.0, -1.0])
    model.learn(arguments.steps, callback=CreditPerDecision())
    several.close()

    report(lambda seen: int(model.predict(seen, deterministic=True)[0]), arguments.corpus, names)


if __name__ == "__main__":
    main()

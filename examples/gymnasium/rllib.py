"""Train an inliner with RLlib's PPO: python rllib.py CORPUS [--only PROJECT] [--iterations N] [--ray ADDRESS].

Each of Ray's environment runners has a compiler. The environment's reward comes in an episode's last step, for all of
its decisions at once; a callback puts the credit of each decision in its place.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import ray
import torch
from inliner import chosen, credits_of, make, report
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.tune.registry import register_env


class CreditPerDecision(RLlibCallback):
    """Replaces the reward of each decision by its credit; the discount must be 0."""

    def on_episode_end(self, *, episode: SingleAgentEpisode, **_: Any) -> None:
        """Replace the rewards of a whole episode."""
        rewards = credits_of(episode.get_infos(-1))
        if len(rewards):  # empty if the compiler crashed
            episode.set_rewards(new_data=rewards.tolist(), at_indices=slice(0, len(rewards)))


def near_llvm(bias: torch.Tensor) -> None:
    """Set the initial biases: about one decision in eight differs from LLVM's; the value head begins at 0."""
    with torch.no_grad():
        bias.copy_(torch.tensor([1.0, -1.0]) if len(bias) == 2 else torch.zeros(len(bias)))


def main() -> None:
    """Train, and compile all modules by the trained policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", metavar="PROJECT", help="train on this project's modules alone")
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--decisions", type=int, default=1024, help="in each iteration")
    parser.add_argument("--runners", type=int, default=2, help="processes with a compiler each")
    parser.add_argument("--ray", metavar="ADDRESS", help="of a cluster whose nodes have the corpus; default: start one")
    arguments = parser.parse_args()
    corpus, names = arguments.corpus.absolute(), chosen(arguments.corpus, arguments.only)
    batch = arguments.decisions

    # Without an address Ray would join any cluster that runs on this machine.
    ray.init(arguments.ray or "local", include_dashboard=False, log_to_driver=False)
    register_env("inline", lambda _: make(corpus, names))
    config = (
        PPOConfig()
        .environment("inline")
        # The credits of an episode come with its last step, so batches must hold whole episodes.
        .env_runners(num_env_runners=arguments.runners, batch_mode="complete_episodes")
        .training(gamma=0, lambda_=0, train_batch_size_per_learner=batch, minibatch_size=min(128, batch))
        .rl_module(model_config=DefaultModelConfig(head_fcnet_bias_initializer=near_llvm))
        .callbacks(CreditPerDecision)
        .debugging(seed=1)
    )
    algorithm = config.build_algo()
    for _ in range(arguments.iterations):
        algorithm.train()
    module = algorithm.get_module()

    def decide(seen: npt.NDArray[np.float32]) -> int:
        with torch.no_grad():
            scores = module.forward_inference({"obs": torch.from_numpy(seen[None])})["action_dist_inputs"]
        return int(scores.argmax())

    report(decide, corpus, names)
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()

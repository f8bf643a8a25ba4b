"""Policies for the backend torch whose weights lie beside no code: a module that is installed takes them."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from policybridge_demo.export.policy import declare_network, pack_toml, policy_folder
from policybridge_demo.export.torch import torch_network
from policybridge_serdes import TensorSpec
from tests.frameworks import ADVICE, feature_names, network


def save_weights(module: torch.nn.Module, folder: Path) -> None:
    save_file(module.state_dict(), folder / "model.safetensors")


def write_weights_network(repository: Path, name: str, advice: TensorSpec = ADVICE) -> None:
    stored = network(advice)
    module = 'module = "policybridge_demo.export.torch:TorchNetwork"'
    arguments = f"arguments = {{sizes = {stored.sizes}, decide = {str(stored.decide).lower()}}}"
    settings = f"[settings]\n{module}\n{arguments}\n"
    toml = declare_network(stored) + pack_toml(feature_names()).replace("[settings]\n", settings, 1)
    save_weights(torch_network(stored), policy_folder(repository, name, "torch", toml))

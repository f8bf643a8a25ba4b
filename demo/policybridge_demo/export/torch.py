"""A network as PyTorch stores it: an exported program, or TorchScript."""

import math
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from policybridge_demo.export.network import Network


class TorchNetwork(torch.nn.Module):
    """A `Network` as a PyTorch module; `torch_network` sets its weights."""

    def __init__(self, sizes: Sequence[int], limit: float = math.inf, *, decide: bool = True) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairwise(sizes))
        self.last = len(sizes) - 2
        self.limit = limit
        self.decide = decide

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Map float [n, features] to int64 [n, 1], or to the output of the last layer."""
        current = observation.clamp(-self.limit, self.limit)
        for index, layer in enumerate(self.layers):
            current = layer(current)
            if index < self.last:
                current = torch.relu(current)
        return current.argmax(1, keepdim=True) if self.decide else current


def torch_network(network: Network) -> TorchNetwork:
    """Make a module with the weights of ``network``."""
    module = TorchNetwork(network.sizes, network.limit, decide=network.decide)
    state: dict[str, torch.Tensor] = {}
    for number, layer in enumerate(network.layers):
        # Copy: arrays that were read from a file may be read-only, of which PyTorch warns.
        state[f"layers.{number}.weight"] = torch.from_numpy(layer.weight.copy())
        state[f"layers.{number}.bias"] = torch.from_numpy(layer.bias.copy())
    module.load_state_dict(state)
    return module.eval()


def write_program(network: Network, folder: Path) -> None:
    """Write ``model.pt2``."""
    dims = {"observation": {0: torch.export.Dim("batch")}}
    save_program(torch_network(network), folder, [torch.zeros(8, network.sizes[0])], dims)


def write_script(network: Network, folder: Path) -> None:
    """Write ``model.pt``."""
    save_script(torch_network(network), folder)


def save_program(module: torch.nn.Module, folder: Path, inputs: Sequence[torch.Tensor], dims: dict[str, Any]) -> None:
    """Export ``module`` for ``inputs``, whose ``dims`` may have any size."""
    torch.export.save(torch.export.export(module, tuple(inputs), dynamic_shapes=dims), folder / "model.pt2")


def save_script(module: torch.nn.Module, folder: Path) -> None:
    """Translate ``module`` to TorchScript."""
    with warnings.catch_warnings():
        # torch.jit.script warns that it is deprecated; the user has chosen it.
        warnings.simplefilter("ignore", DeprecationWarning)
        jit: Any = torch.jit
        jit.script(module).save(str(folder / "model.pt"))

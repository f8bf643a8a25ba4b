"""PyTorch modules for tests, in a module that can be imported by name: a policy's settings name them."""

import torch


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Difference(torch.nn.Module):
    def forward(self, b: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return a - b


class Table(torch.nn.Module):
    """Weights of ``size`` numbers, the advice being the one at ``x``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table[x]


class Mixture(torch.nn.Module):
    def forward(self, hot: torch.Tensor, users: torch.Tensor, cost: torch.Tensor) -> torch.Tensor:
        return (users + cost) * hot


class Both(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"same": x, "minus": -x}


class Optional(torch.nn.Module):
    def forward(self, x: torch.Tensor, state: torch.Tensor | None = None) -> torch.Tensor:
        return x if state is None else x + state


class Writing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.save(x, "written-by-a-policy")
        return x

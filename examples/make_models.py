"""Makes the models of the example policies: small networks with random weights, the same ones each time.

    python examples/make_models.py [NAME …]

They have learnt nothing; they show how a policy consults models. Replace the files by models of your own with the same
inputs and outputs: exported programs (``torch.export``), or ONNX under another name in ``policy.toml``.
"""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch.export import Dim

POLICIES = Path(__file__).parent / "policies"
EMBEDDING, ACTIONS = 300, 35
REGISTERS = 8
WIDTH = 16
SEEDS = {"pass-sequence": 300, "loop-distribution": 20, "register-allocation": 20}
"""Chosen so that the models stop, distribute and split sometimes, and not always."""


class PassScores(torch.nn.Module):
    """Scores of the actions, float [35]: a network of one hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = torch.nn.Linear(2 * EMBEDDING, WIDTH)
        self.leave = torch.nn.Linear(WIDTH, ACTIONS)

    def forward(self, embedding: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
        """Take the module's embedding, and how it differs from the last one, float [300] each."""
        scores: torch.Tensor = self.leave(torch.tanh(self.enter(torch.cat([embedding, change]))))
        return scores


class GraphNetwork(torch.nn.Module):
    """A gated graph network (Li et al., ICLR 2016): an embedding of each node and its neighbours, float [N, 16]."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.enter = torch.nn.Linear(features, WIDTH)
        self.send = torch.nn.Linear(WIDTH, WIDTH)
        self.gate = torch.nn.GRUCell(WIDTH, WIDTH)

    def forward(self, features: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Take float [N, features] and the nodes that each edge joins, int64 [E, 2]; a message travels two edges."""
        nodes: torch.Tensor = torch.tanh(self.enter(features))
        for _ in range(2):
            messages = self.send(nodes).index_select(0, edges[:, 0])
            nodes = self.gate(torch.zeros_like(nodes).index_add(0, edges[:, 1], messages), nodes)
        return nodes


class Select(torch.nn.Module):
    """Which of N nodes comes after the last one: a score each, float [N]."""

    def __init__(self) -> None:
        super().__init__()
        self.match = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, nodes: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """Take float [N, 16] and the last node, float [16]."""
        scores: torch.Tensor = nodes @ self.match(last)
        return scores


class Distribute(torch.nn.Module):
    """Whether a node joins the loop of the last node, or begins a new loop: two scores."""

    def __init__(self) -> None:
        super().__init__()
        self.choose = torch.nn.Linear(2 * WIDTH, 2)

    def forward(self, last: torch.Tensor, node: torch.Tensor) -> torch.Tensor:
        """Take float [16] each."""
        scores: torch.Tensor = self.choose(torch.cat([last, node]))
        return scores


class Node(torch.nn.Module):
    """Which of N live ranges is next: a score each, float [N]."""

    def __init__(self) -> None:
        super().__init__()
        self.score = torch.nn.Linear(WIDTH, 1)

    def forward(self, nodes: torch.Tensor) -> torch.Tensor:
        """Take float [N, 16]."""
        scores: torch.Tensor = self.score(nodes).squeeze(1)
        return scores


class Task(torch.nn.Module):
    """Whether to colour or to split a live range: two scores."""

    def __init__(self) -> None:
        super().__init__()
        self.choose = torch.nn.Linear(WIDTH, 2)

    def forward(self, node: torch.Tensor) -> torch.Tensor:
        """Take float [16]."""
        scores: torch.Tensor = self.choose(node)
        return scores


class Split(torch.nn.Module):
    """At which of P points to split a live range: a score each, float [P]."""

    def __init__(self) -> None:
        super().__init__()
        self.favourite = torch.nn.Linear(WIDTH, 1)

    def forward(self, node: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Take float [16], and where each point is between the ends, 0 to 1, float [P]."""
        return -(places - torch.sigmoid(self.favourite(node))).abs()


class Colour(torch.nn.Module):
    """Which register a live range gets, or the stack: a score each, float [9]."""

    def __init__(self) -> None:
        super().__init__()
        self.choose = torch.nn.Linear(WIDTH + REGISTERS + 1, REGISTERS + 1)

    def forward(self, node: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
        """Take float [16], and how many neighbours hold each register, float [9]."""
        scores: torch.Tensor = self.choose(torch.cat([node, taken]))
        return scores


class Example(NamedTuple):
    """A model: how it is made, inputs to export it with, and which dimensions of each input may vary."""

    make: Callable[[], torch.nn.Module]
    inputs: tuple[torch.Tensor, ...]
    varies: tuple[dict[int, object], ...]


@cache
def examples() -> dict[str, Example]:
    """Give all models by the names of their policy and of their own."""
    any_size = {0: Dim.DYNAMIC}
    edges = torch.tensor([[0, 1], [1, 2], [2, 3], [0, 2]])
    embedding, nodes, node, other = (torch.zeros(*size) for size in [(EMBEDDING,), (5, WIDTH), (WIDTH,), (WIDTH,)])
    return {
        "pass-sequence/scores": Example(PassScores, (embedding, torch.ones(EMBEDDING)), ({}, {})),
        "loop-distribution/graph": Example(lambda: GraphNetwork(8), (torch.zeros(5, 8), edges), (any_size, any_size)),
        "loop-distribution/select": Example(Select, (nodes, node), (any_size, {})),
        "loop-distribution/distribute": Example(Distribute, (node, other), ({}, {})),
        "register-allocation/graph": Example(lambda: GraphNetwork(6), (torch.zeros(5, 6), edges), (any_size, any_size)),
        "register-allocation/node": Example(Node, (nodes,), (any_size,)),
        "register-allocation/task": Example(Task, (node,), ({},)),
        "register-allocation/split": Example(Split, (node, torch.zeros(5)), ({}, any_size)),
        "register-allocation/colour": Example(Colour, (node, torch.zeros(REGISTERS + 1)), ({}, {})),
    }


def make(name: str) -> torch.nn.Module:
    """Make the model called ``name``, with the weights that it always has."""
    # A seed for each model, so that one can be made anew without the others.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEEDS[name.partition("/")[0]] + list(examples()).index(name))
        return examples()[name].make().eval()


def export(name: str) -> torch.export.ExportedProgram:
    """Make the model called ``name`` and export it."""
    example = examples()[name]
    program = torch.export.export(make(name), example.inputs, dynamic_shapes=example.varies)
    # Stack traces hold paths of this machine, and example inputs are stored as a pickle, which the server refuses.
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    program.example_inputs = None
    return program


def path(name: str) -> Path:
    """Say where the model called ``name`` lies."""
    policy, _, model = name.partition("/")
    return POLICIES / policy / "1" / f"{model}.pt2"


def main() -> None:
    """Write the models that the command line names, or all."""
    for name in sys.argv[1:] or examples():
        torch.export.save(export(name), path(name))
        print(f"{path(name).stat().st_size:7} bytes  {path(name)}")


if __name__ == "__main__":
    main()

"""The distribution of a loop in one decision, after Jain et al., LLVM-HPC 2022.

(Reinforcement Learning assisted Loop Distribution for Locality and Vectorization.) The compiler sends the loop's
dependence graph, in which statements that depend on each other in a circle are one node. Two agents walk the graph in
an order that the dependences allow: one selects the next node, the other says whether a new loop begins with it.
"""

import numpy as np


class Policy:
    """Consults three models, two of them once per node."""

    def __init__(self, models):
        """Keep ``models``: ``graph`` gives an embedding of each of N nodes, float [N, 16], which the agents take."""
        self.models = models

    def evaluate(self, observation, _session):
        """Give for each node the number of its loop, int32 [N]; the loops run in the order of their numbers."""
        features, edges = observation["features"], observation["edges"]
        waits_for = _predecessors(len(features), edges)
        nodes = self.models["graph"](features=features, edges=edges)
        partition = np.zeros(len(nodes), np.int32)
        last, loop = None, 0
        while waits_for:
            node = self._select(nodes, _ready(waits_for), last)
            if last is not None and self._distribute(nodes[last], nodes[node]):
                loop += 1
            partition[node] = loop
            last = node
            _visit(waits_for, node)
        return partition

    def _select(self, nodes, ready, last):
        before = np.zeros(nodes.shape[1], np.float32) if last is None else nodes[last]
        scores = self.models["select"](nodes=nodes[ready], last=before)
        return ready[scores.argmax()]

    def _distribute(self, last, node):
        merge, distribute = self.models["distribute"](last=last, node=node)
        return distribute > merge


def _predecessors(count, edges):
    """Give for each of ``count`` nodes the set of nodes that it depends on."""
    if edges.size and not 0 <= edges.min() <= edges.max() < count:
        raise ValueError(f"an edge names a node outside 0 to {count - 1}")
    waits_for = {node: set() for node in range(count)}
    for source, target in edges.tolist():
        waits_for[target].add(source)
    return waits_for


def _ready(waits_for):
    ready = [node for node, others in waits_for.items() if not others]
    if not ready:
        raise ValueError(f"the dependences of the nodes {sorted(waits_for)} are circular")
    return ready


def _visit(waits_for, node):
    del waits_for[node]
    for others in waits_for.values():
        others.discard(node)

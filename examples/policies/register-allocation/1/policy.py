"""A hierarchical register allocator, after RL4ReAl (VenkataKeerthy et al., CC 2023, arXiv 2204.02013).

Four agents are consulted for one advice: which live range is next; whether to colour or to split it; and then with
which register, or at which point. A fifth model embeds the interference graph for them. The compiler sends what
changed in the graph. The policy keeps the graph, and the registers that it gave, for the episode: one function.
"""

import numpy as np

REGISTERS = 8
STACK = REGISTERS
"""The choice after the last register; it is always legal."""

COLOUR, SPLIT = 0, 1


class Policy:
    """Asks the agents in turn, and lets them choose legal actions only."""

    def __init__(self, models):
        """Keep ``models``; ``graph`` embeds N live ranges as float [N, 16] for the four agents."""
        self.models = models

    def start(self, session):
        """Begin a function."""
        session.state["graph"] = Graph()

    def evaluate(self, observation, session):
        """Give the live range's number, the task, and the register or the point, int32 [3]."""
        graph = session.state["graph"]
        graph.update(observation)
        numbers, features, edges = graph.tensors()
        nodes = self.models["graph"](features=features, edges=edges)
        open_rows = [row for row, number in enumerate(numbers) if number not in graph.register]
        if not open_rows:
            raise ValueError("every live range has its register; nothing is left to decide")
        row = open_rows[self.models["node"](nodes=nodes[open_rows]).argmax()]
        return self._decide(graph, numbers[row], nodes[row])

    def _decide(self, graph, number, node):
        points = graph.points[number]
        if points and self.models["task"](node=node).argmax() == SPLIT:
            places = np.linspace(0, 1, points, dtype=np.float32)
            return number, SPLIT, self.models["split"](node=node, places=places).argmax()
        taken = graph.taken(number)
        scores = self.models["colour"](node=node, taken=taken)
        scores[taken > 0] = -np.inf
        graph.register[number] = int(scores.argmax())
        return number, COLOUR, graph.register[number]


class Graph:
    """The interference graph of one function, by the numbers of its live ranges.

    Attributes:
        features: float [6] each.
        points: at how many points each may be split.
        neighbours: the numbers of the live ranges that interfere with each.
        register: of each live range that is coloured; it stays in the graph.

    """

    def __init__(self):
        self.features, self.points, self.neighbours, self.register = {}, {}, {}, {}

    def update(self, observation):
        """Apply the changes since the last observation."""
        for number in observation["removed"].tolist():
            for other in self.neighbours.pop(number):
                self.neighbours[other].discard(number)
            del self.features[number], self.points[number]
        # A copy, because the rows are kept: a compiler in the same process writes into its buffer again.
        rows = np.array(observation["features"])
        for number, row, points in zip(
            observation["changed"].tolist(), rows, observation["points"].tolist(), strict=True
        ):
            self.features[number], self.points[number] = row, points
            self.neighbours.setdefault(number, set())
        for one, other in observation["edges"].tolist():
            self.neighbours[one].add(other)
            self.neighbours[other].add(one)

    def tensors(self):
        """Give the numbers in order, their features, float [N, 6], and pairs of positions, int64 [E, 2], both ways."""
        numbers = sorted(self.features)
        place = {number: row for row, number in enumerate(numbers)}
        edges = [(place[one], place[other]) for one in numbers for other in sorted(self.neighbours[one])]
        features = np.array([self.features[number] for number in numbers], np.float32).reshape(-1, 6)
        return numbers, features, np.array(edges, np.int64).reshape(-1, 2)

    def taken(self, number):
        """Give how many neighbours hold each register, float [9]; never the stack, which holds any number."""
        held = [self.register[other] for other in self.neighbours[number] if other in self.register]
        count = np.bincount(held, minlength=REGISTERS + 1).astype(np.float32)
        count[STACK] = 0
        return count

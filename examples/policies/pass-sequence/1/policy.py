"""A sequence of passes, one decision after another, after POSET-RL (Jain et al., ISPASS 2022).

The compiler embeds the module (IR2Vec: float [300]), asks for an action, runs the action's sub-sequence of passes,
and asks again, until the advice is the last action, which means stop.
"""

import numpy as np


class Policy:
    """Scores actions by the module's embedding, and by how the last sub-sequence changed it."""

    def __init__(self, models):
        """Keep ``models``: ``scores`` takes two float [300] and gives float [35]."""
        self.models = models

    def evaluate(self, observation, session):
        """Give a score for each of 34 sub-sequences and for stopping, float [35]; the head chooses."""
        # A copy, because it is kept: a compiler in the same process writes into its buffer again.
        embedding = np.array(observation["embedding"])
        last = session.state.get("embedding", embedding)
        session.state["embedding"] = embedding
        return self.models["scores"](embedding=embedding, change=embedding - last)

"""An iterative pass sequence, in the shape of POSET-RL (Jain et al., ISPASS 2022).

The compiler embeds the module (IR2Vec: float [300]), asks for an action, runs the sub-sequence of passes that it stands
for, and asks again, until the action is to stop: an action as any other, the last one.
"""

import numpy as np


class Policy:
    """Scores actions by where the module is, and by how the last sub-sequence moved it there."""

    def __init__(self, models):
        """Keep ``models``: ``scores`` takes two float [300] and gives float [35]."""
        self.models = models

    def evaluate(self, observation, session):
        """Give a score for each of 34 sub-sequences and for stopping, float [35]; the head does the rest."""
        # A copy, because it is kept: a compiler in the same process goes on writing into its buffers.
        embedding = np.array(observation["embedding"])
        last = session.state.get("embedding", embedding)
        session.state["embedding"] = embedding
        return self.models["scores"](embedding=embedding, change=embedding - last)

"""Register eviction that is always legal: the compiler would crash on a register that ``mask`` rules out."""

import numpy as np


class Policy:
    """Takes the first candidate, whatever it costs; index 32 is "evict nothing"."""

    def evaluate(self, observation, session):
        """Give the index of the register to evict, among those whose ``mask`` is 1."""
        return np.flatnonzero(observation["mask"])[0]

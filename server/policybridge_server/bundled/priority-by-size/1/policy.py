"""Register priority by size: the longer a value lives, the earlier it gets its register."""


class Policy:
    """Looks at ``li_size`` alone; ``stage`` and ``weight`` are there to be used as well."""

    def evaluate(self, observation, session):
        """Give the priority of this live range; the highest is allocated first."""
        return float(observation["li_size"].item())

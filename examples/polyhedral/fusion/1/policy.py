class Policy:
    """Fuses statements with equal numbers of loops; otherwise one would be under a condition in the innermost loop."""

    def evaluate(self, observation, session):
        bands, loops, _ = observation["separate"]
        return loops == bands * observation["fused"][1]

"""A soak: clients ask and a publisher publishes for a long time, while random faults happen."""

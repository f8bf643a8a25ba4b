"""The decision path: binding, sessions and batches. It knows no transport and no framework."""

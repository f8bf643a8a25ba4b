"""Measurements: PolicyBridge beside what bounds it, in one interleaved run."""

"""A contender for the benchmark: PolicyBridge under another name."""

from policybridge_bench.contenders.own import PolicyBridge


class Example(PolicyBridge):
    """A server of PolicyBridge."""

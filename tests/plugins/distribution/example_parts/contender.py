"""A contender for the benchmark: PolicyBridge's own echo under another name."""

from policybridge_bench.contenders.floors import PythonSocketEcho


class ExampleEcho(PythonSocketEcho):
    """A bare socket in Python."""

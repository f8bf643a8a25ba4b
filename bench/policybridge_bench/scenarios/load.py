"""A policy server under load."""

import argparse

from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill


def run(arguments: argparse.Namespace) -> int:
    """Measure what ``--contenders`` names; by default PolicyBridge alone."""
    fill(arguments)
    finish(measure(arguments), arguments)
    return 0

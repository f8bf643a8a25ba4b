"""A policy server under load."""

import argparse

from policybridge_bench.scenarios.interleaved import measure


def run(arguments: argparse.Namespace) -> int:
    """Measure what ``--contenders`` names: PolicyBridge alone unless told otherwise."""
    measure(arguments, contenders="policybridge", ways="socket,grpc")
    return 0

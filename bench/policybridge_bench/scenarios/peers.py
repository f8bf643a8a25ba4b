"""PolicyBridge beside floors and peers, in one interleaved run."""

import argparse

from policybridge_bench.bounds import print_bounds
from policybridge_bench.contenders.contract import FLOORS, PEERS, RESTLESS
from policybridge_bench.scenarios.interleaved import measure

_BASELINE = "grpc-echo/unary"


def run(arguments: argparse.Namespace) -> int:
    """Measure all contenders but the restless; those that cannot run here are left out, and said why."""
    arguments.baseline = arguments.baseline or _BASELINE
    contenders = ["policybridge", *FLOORS, *(peer for peer in PEERS if peer not in RESTLESS)]
    print_bounds(measure(arguments, contenders=",".join(contenders), ways="all").cases)
    return 0

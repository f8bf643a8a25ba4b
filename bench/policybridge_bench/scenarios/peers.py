"""PolicyBridge beside floors and peers, in one interleaved run."""

import argparse

from policybridge_bench.bounds import bounds, print_bounds
from policybridge_bench.contenders.contract import FLOORS, PEERS, RESTLESS
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill


def run(arguments: argparse.Namespace) -> int:
    """Measure all contenders but the restless; for each that cannot run here, the reason is printed."""
    contenders = ["policybridge", *FLOORS, *(peer for peer in PEERS if peer not in RESTLESS)]
    fill(arguments, contenders=",".join(contenders), ways="all", baseline="grpc-echo/unary")
    run = measure(arguments)
    print_bounds(bounds(run.cases))
    finish(run, arguments)
    return 0

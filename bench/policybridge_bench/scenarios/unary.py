"""One call for each decision: Evaluate and ModelInfer beside Triton's unary calls and the C++ unary echo."""

import argparse

from policybridge_bench.bounds import bounds, print_bounds
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill

_CONTENDERS = "policybridge/grpc-unary,policybridge/grpc-infer,grpc-echo/unary,triton/unary"


def run(arguments: argparse.Namespace) -> int:
    """Measure with 38 named inputs (the payload inliner) and with one packed tensor (the payload vector)."""
    fill(arguments, contenders=_CONTENDERS, payloads="inliner,vector", baseline="grpc-echo/unary")
    run = measure(arguments)
    print_bounds(bounds(run.cases))
    finish(run, arguments)
    return 0

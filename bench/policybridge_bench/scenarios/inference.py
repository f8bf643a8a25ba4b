"""ModelInfer of the Open Inference Protocol beside a unary Evaluate: the same observations, the same server."""

import argparse

from policybridge_bench.bounds import within
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill
from policybridge_bench.policies import NAMED
from policybridge_bench.ratios import Baseline

_LIMIT = 1.5
"""ModelInfer is promised to take at most so many times as long as Evaluate."""


def run(arguments: argparse.Namespace) -> int:
    """Measure with one packed tensor (the payload vector), and with 38 named inputs on each backend."""
    fill(
        arguments,
        contenders="policybridge/grpc-tensors,policybridge/grpc-infer",
        serdes="protobuf",
        backends=f"onnx,{NAMED}",
        payloads="vector,inliner",
        clients="1",
        baseline="policybridge/grpc-tensors",
    )
    run = measure(arguments)
    bounds = within(run.cases, Baseline("policybridge", "grpc-tensors"), _LIMIT, way="grpc-infer")
    return finish(run, arguments, bounds=bounds)

"""A foreign client's getAdvice beside our own Evaluate: the same server, network and 38 features."""

import argparse
from collections.abc import Iterator, Sequence

from policybridge_bench.bounds import Bound
from policybridge_bench.contenders.own import policybridge
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill
from policybridge_bench.ratios import find, ratio
from policybridge_bench.results import Measured

_ADVICE = "grpc-advice"
_LIMIT = 1.3
"""getAdvice is promised to take at most so many times as long as Evaluate."""


def run(arguments: argparse.Namespace) -> int:
    """Measure both by unary calls of bytes made beforehand, so that only the server differs."""
    fill(
        arguments,
        ways=f"grpc-unary,{_ADVICE}",
        serdes="bitstream,protobuf",
        clients="1",
        baseline=f"policybridge/{_ADVICE}",
    )
    run = measure(arguments, {"policybridge": policybridge(arguments, advice=True)})
    return finish(run, arguments, bounds=_bounds(run.cases))


def _bounds(cases: Sequence[Measured]) -> Iterator[Bound]:
    for evaluate in find(cases, way="grpc-unary"):
        for advice in find(cases, way=_ADVICE, generator=evaluate.case.generator, clients=evaluate.case.clients):
            text = f"getAdvice / Evaluate, {evaluate.case.serdes}, {evaluate.case.clients} clients, p50"
            yield Bound(text, ratio(advice, evaluate, "p50"), _LIMIT, at_least=False)

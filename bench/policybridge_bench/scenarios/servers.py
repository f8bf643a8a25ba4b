"""Servers under load: PolicyBridge alone, or beside floors and peers in one interleaved run."""

import argparse

from policybridge_bench.bounds import bounds
from policybridge_bench.contenders.contract import FLOORS, PEERS, RESTLESS
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill

_UNARY = "policybridge/grpc-unary,policybridge/grpc-infer,grpc-echo/unary,triton/unary"


def load(arguments: argparse.Namespace) -> int:
    """Measure what ``--contenders`` names; by default PolicyBridge alone."""
    fill(arguments)
    return finish(measure(arguments), arguments)


def peers(arguments: argparse.Namespace) -> int:
    """Measure all contenders but the restless; for each that cannot run here, the reason is printed."""
    contenders = ["policybridge", *FLOORS, *(peer for peer in PEERS if peer not in RESTLESS)]
    fill(arguments, contenders=",".join(contenders), ways="all", baseline="grpc-echo/unary")
    return _beside_others(arguments)


def unary(arguments: argparse.Namespace) -> int:
    """Measure single calls with 38 named inputs (the payload inliner) and with one packed tensor (vector)."""
    fill(arguments, contenders=_UNARY, payloads="inliner,vector", baseline="grpc-echo/unary")
    return _beside_others(arguments)


def _beside_others(arguments: argparse.Namespace) -> int:
    run = measure(arguments)
    return finish(run, arguments, bounds=bounds(run.cases))

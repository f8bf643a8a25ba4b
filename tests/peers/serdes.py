"""Each SerDes alone: one observation encoded and decoded in its session form, in this process."""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial

from policybridge_bench.loads import Candidate
from policybridge_bench.measuring import conduct, finish
from policybridge_bench.options import fill, names
from policybridge_bench.payloads import PAYLOADS, payload
from policybridge_bench.results import Case, timed
from policybridge_serdes import SERDES, load_serdes

_BLOCK = 2e-3
"""Seconds of calls that are measured together, because one call is too short for the clock."""


def run(arguments: argparse.Namespace) -> int:
    """Measure all SerDes in turn, in every round."""
    fill(arguments, serdes="all", seconds=0.05)
    return finish(conduct(arguments, list(_candidates(arguments))), arguments)


def _candidates(arguments: argparse.Namespace) -> Iterator[Candidate]:
    for name in names(arguments.payloads, "payload", PAYLOADS):
        for serdes in names(arguments.serdes, "SerDes", SERDES.names()):
            observation = payload(name).observations()[0]
            codec = load_serdes(serdes).codec(payload(name).signature.features)
            data = codec.encode(observation)
            calls: dict[str, Callable[[], object]] = {
                "encode": partial(codec.encode, observation),
                "decode": partial(codec.decode, data),
            }
            for way, call in calls.items():
                case = Case(
                    contender="policybridge", way=way, generator="python", clients=1, payload=name, serdes=serdes
                )
                yield Candidate(case, partial(timed, call, arguments.seconds, block=_calls(call)))


def _calls(call: Callable[[], object]) -> int:
    """Count the calls that `_BLOCK` has time for."""
    count, spent = 1, 0.0
    while spent < _BLOCK:
        count *= 2
        started = time.perf_counter()
        for _ in range(count):
            call()
        spent = time.perf_counter() - started
    return count

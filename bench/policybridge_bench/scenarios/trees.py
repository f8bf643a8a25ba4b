"""Another build of the server beside this one, in one interleaved run."""

import argparse
import sys

import msgspec

from policybridge_bench.compare import print_comparison
from policybridge_bench.contenders.own import policybridge
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill
from policybridge_bench.results import Run
from policybridge_core.errors import InvalidError

_OTHER = "other"


def run(arguments: argparse.Namespace) -> int:
    """Measure both; the status is 1 where this tree is slower than the build that ``--python`` names.

    The load generators are this tree's for both.
    """
    if arguments.python == sys.executable:
        raise InvalidError("trees needs --python: the interpreter, or the folder of a checkout, of the other build")
    fill(arguments, baseline=_OTHER, limit=1.05)
    contenders = {"policybridge": policybridge(arguments, python=sys.executable), _OTHER: policybridge(arguments)}
    run = measure(arguments, contenders)
    finish(run, arguments)
    return print_comparison(_only(run, _OTHER), _only(run, "policybridge"), arguments.limit, paired=True)


def _only(run: Run, contender: str) -> Run:
    """Give the cases of one contender, as if it were this tree's."""
    cases = [
        msgspec.structs.replace(each, case=msgspec.structs.replace(each.case, contender="policybridge"))
        for each in run.cases
        if each.case.contender == contender
    ]
    return msgspec.structs.replace(run, cases=cases)

"""``policybridge bench`` with more scenarios and contenders."""

import argparse
import sys

from policybridge_bench.command import add_arguments, run
from policybridge_bench.drive import GENERATORS
from tests.peers.native import prepare
from tests.peers.tables import CONTENDERS, SCENARIOS, SUMMARIES

if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m tests.peers")
    add_arguments(parser, SCENARIOS, CONTENDERS, {"native": prepare, **GENERATORS})
    more = "\n".join(f"  {name:10} {text}" for name, text in SUMMARIES.items())
    parser.epilog = f"{parser.epilog}\n\nscenarios beside those:\n{more}"
    parser.add_argument("--versions", type=int, default=200, help="publish: versions published under load (200)")
    sys.exit(run(parser.parse_args()))

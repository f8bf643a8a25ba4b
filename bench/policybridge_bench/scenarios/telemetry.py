"""The cost of counters, scrapes and traces."""

import argparse
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_bench.bounds import Bound
from policybridge_bench.contenders.own import policybridge
from policybridge_bench.loads import Candidate
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill
from policybridge_bench.processes import free_port, server
from policybridge_bench.ratios import find, ratio
from policybridge_bench.results import Case, Measured, timed

_UNCOUNTED: Final = "uncounted"
_LIMITS: Final = {"policybridge": 0.98, "traced": 0.97}
"""Bound on the decisions/s with 8 clients, as a share of those of a server without counters."""

_COUNT_NOTHING: Final = """\
from policybridge_server import counters
counters.VersionCounters.batch = lambda *_: None
"""

_RECEIVER: Final = """\
from http.server import BaseHTTPRequestHandler, HTTPServer
class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
with HTTPServer(("127.0.0.1", 0), Receiver) as receiver:
    print(f"ready http://127.0.0.1:{receiver.server_port}", flush=True)
    receiver.serve_forever()
"""


def run(arguments: argparse.Namespace) -> int:
    """Measure a server with counters, one without, and one that traces 1 % of its decisions.

    The case ``scrape`` is the time of one ``GET /metrics``; Prometheus asks every 15 s.
    """
    fill(arguments, ways="socket", clients="8", rounds=15, baseline=_UNCOUNTED)
    http, own = f"127.0.0.1:{free_port()}", policybridge(arguments)
    with TemporaryDirectory(prefix="pb-") as folder, server([sys.executable, "-c", _RECEIVER]) as receiver:
        # Python runs a module of this name when it starts.
        (Path(folder) / "sitecustomize.py").write_text(_COUNT_NOTHING)
        contenders = {
            _UNCOUNTED: policybridge(arguments, env={"PYTHONPATH": folder}),
            "policybridge": policybridge(arguments, options=[*own.options, "--http", http]),
            "traced": policybridge(arguments, options=[*own.options, "--traces", receiver.addresses[0]]),
        }
        run = measure(arguments, contenders, more=lambda _: [_scrape(http, arguments.seconds)])
    return finish(run, arguments, bounds=_bounds(run.cases))


def _bounds(cases: Sequence[Measured]) -> Iterator[Bound]:
    for (contender, limit), base in (
        (each, base) for each in _LIMITS.items() for base in find(cases, contender=_UNCOUNTED)
    ):
        for own in find(cases, contender=contender, way=base.case.way, clients=base.case.clients):
            yield Bound(
                f"{own.case.name}: decisions/s / {_UNCOUNTED}", ratio(own, base, "throughput"), limit, at_least=True
            )


def _scrape(address: str, seconds: float) -> Candidate:
    def ask() -> None:
        with urllib.request.urlopen(f"http://{address}/metrics") as reply:
            reply.read()

    case = Case(contender="policybridge", way="scrape", generator="python", clients=1)
    return Candidate(case, lambda: timed(ask, seconds))

"""The files that a run is written to."""

import argparse

from policybridge_bench.results import Run, write_csv, write_json


def write(run: Run, arguments: argparse.Namespace) -> None:
    """Write those that were asked for."""
    if arguments.json:
        write_json(run, arguments.json)
    if arguments.csv:
        write_csv(run, arguments.csv)
    if arguments.html:
        from policybridge_bench.page import write_page  # noqa: PLC0415 - plotly takes a second to load

        write_page(run, arguments.html)

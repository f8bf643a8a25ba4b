"""The tables of ``policybridge bench``."""

import io

from rich.console import Console

from policybridge_bench.ratios import Baseline, ratio
from policybridge_bench.results import Case, Measured, Round
from policybridge_bench.table import tables


def measured(way: str, generator: str, *latencies: float) -> Measured:
    case = Case(contender="policybridge", way=way, generator=generator, clients=1)
    rounds = [
        Round(p50=p50, p90=1, p99=1, p999=1, throughput=1, count=1, spectrum=[], client_cpu=1)
        for p50 in latencies or (1.0,)
    ]
    return Measured(case=case, rounds=rounds)


def test_cases_of_two_load_generators_stand_in_two_tables_and_have_no_ratio_to_each_other() -> None:
    console = Console(width=220, file=io.StringIO(), record=True)
    cases = [measured("socket", "native"), measured("inprocess", "python"), measured("grpc", "native")]
    console.print(tables(cases, "", Baseline("policybridge", "socket")))
    native, python = console.export_text().split("load generator: python")
    assert [way in native for way in ("policybridge socket", "policybridge grpc", "policybridge inprocess")] == [
        True,
        True,
        False,
    ]
    (row,) = [line for line in python.splitlines() if "policybridge inprocess" in line]
    assert row.replace("│", " ").split()[-2:] != ["1.00", "1.00"]


def test_a_ratio_is_the_median_of_those_within_each_round() -> None:
    one, other = measured("socket", "native", 1.0, 2.0, 9.0), measured("grpc", "native", 1.0, 4.0, 3.0)
    assert ratio(one, other, "p50") == 1.0

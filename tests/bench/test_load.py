"""A server under load, from the command line to the files."""

import csv
from pathlib import Path

import pytest

from policybridge_bench.payloads import PAYLOADS
from tests.bench.running import bench, measured
from tests.conftest import ServerFactory
from tests.repositories import answering, write_python

STALLS = """
import time

class Policy:
    def __init__(self):
        self.asked = 0

    def evaluate(self, observation, session):
        self.asked += 1
        if self.asked % 25 == 0:
            time.sleep(0.3)
        return 1
"""


def test_a_run_reports_latency_throughput_cpu_and_memory_of_each_case(tmp_path: Path) -> None:
    run = measured(tmp_path, "--clients", "1,2")
    assert [(each.case.way, each.case.clients) for each in run.cases] == [
        ("grpc", 1),
        ("grpc", 2),
        ("socket", 1),
        ("socket", 2),
    ]
    for each in run.cases:
        assert len(each.rounds) == 1
        for one in each.rounds:
            assert 0 < one.p50 <= one.p90 <= one.p99 <= one.p999 <= one.spectrum[-1]
            assert one.spectrum == sorted(one.spectrum)
            assert one.throughput > 0
            assert one.client_cpu > 0
            assert one.server_rss is not None
            assert one.server_rss > 10e6


def test_the_table_the_csv_and_the_page_tell_the_same_cases(tmp_path: Path) -> None:
    short = ["--rounds", "2", "--seconds", "0.1", "--clients", "1", "--generators", "wire", "--ways", "socket"]
    ended = bench(*short, "--csv", tmp_path / "run.csv", "--html", tmp_path / "run.html")
    assert ended.status == 0, ended.errors
    name = "policybridge socket bitstream onnx inliner wire ×1"
    assert name in ended.output
    with (tmp_path / "run.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["way"], row["generator"], row["round"]) for row in rows] == [
        ("socket", "wire", "0"),
        ("socket", "wire", "1"),
    ]
    page = (tmp_path / "run.html").read_text()
    assert name in page
    # It needs no network.
    assert "<script src=" not in page
    assert "<link" not in page
    assert "Plotly.newPlot" in page


def test_every_payload_is_asked_and_answered(tmp_path: Path) -> None:
    run = measured(tmp_path, "--payloads", "all", "--ways", "socket", "--seconds", "0.05")
    assert [each.case.payload for each in run.cases] == list(PAYLOADS)


def test_every_serdes_is_measured_in_sessions_and_in_unary_calls(tmp_path: Path) -> None:
    run = measured(tmp_path, "--serdes", "all", "--ways", "grpc,grpc-unix-unary", "--payloads", "graph")
    assert {(each.case.serdes, each.case.way) for each in run.cases} == {
        (serdes, way) for serdes in ("bitstream", "protobuf", "json") for way in ("grpc", "grpc-unix-unary")
    }


def test_backends_are_measured_beside_each_other(tmp_path: Path) -> None:
    run = measured(tmp_path, "--backends", "onnx,onnx-named,python", "--ways", "socket")
    assert [each.case.backend for each in run.cases] == ["onnx", "onnx-named", "python"]


def test_an_open_loop_counts_the_wait_of_those_that_were_due_while_the_server_stalled(tmp_path: Path) -> None:
    write_python(tmp_path / "policies", "stalls", STALLS)
    asked = ["--repository", tmp_path / "policies", "--policy", "stalls", "--ways", "socket", "--seconds", "0.5"]
    (opened,) = measured(tmp_path, *asked, "--rates", "100").cases
    assert opened.rounds[0].count == 50
    assert opened.rounds[0].p90 > 50e3
    (closed,) = measured(tmp_path, *asked).cases
    assert closed.rounds[0].p90 < 50e3


def test_a_server_that_runs_already_can_be_measured(tmp_path: Path, server_factory: ServerFactory) -> None:
    write_python(tmp_path / "policies", "one", answering("1"))
    server = server_factory(tmp_path / "policies")
    run = measured(tmp_path, "--server", server.socket, "--server-pid", server.process.pid, "--policy", "one")
    (each,) = run.cases
    assert each.case.backend == "one"
    assert each.rounds[0].server_rss is not None


def test_a_failing_policy_fails_the_run_and_is_no_figure(tmp_path: Path) -> None:
    write_python(tmp_path / "policies", "broken", answering("1 / 0"))
    ended = bench(
        "--repository", tmp_path / "policies", "--policy", "broken", "--generators", "python", "--rounds", "1"
    )
    assert ended.status == 2
    assert "before it was ready" in ended.errors
    assert "division by zero" in ended.errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "unknown scenario 'nonsense'; there are embedded, launcher"),
        (["--contenders", "nobody"], "unknown contender 'nobody'; there are policybridge"),
        (["--payloads", "huge"], "unknown payload 'huge'; there are inliner"),
        (["--serdes", "xml"], "unknown SerDes 'xml'; there are bitstream"),
        (["--backends", "caffe"], "unknown backend 'caffe'; there are"),
        (["--generators", "human"], "unknown generator 'human'; there are wire, python"),
        (["--clients", "0"], "the numbers must be above 0"),
        (["--baseline", "/unary"], "a baseline is CONTENDER or CONTENDER/WAY"),
        (["--server", "socket:x"], "go with --policy"),
        (
            ["--ways", "sockets"],
            "policybridge has no way 'sockets'; did you mean 'socket'? there are all, grpc, grpc-inf",
        ),
        (["--contenders", "policybridge/pigeon"], "policybridge has no way 'pigeon'; there are all, grpc, grpc-infer"),
        (["--compare", "a.json", "b.json"], "a.json is no result of policybridge bench"),
    ],
)
def test_a_wrong_word_is_named_with_those_that_would_be_right(words: list[str], message: str) -> None:
    ended = bench("--generators", "python", *words)
    assert ended.status == 2
    assert message in ended.errors

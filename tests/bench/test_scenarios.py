"""The scenarios beside load: each does its measurement and writes it in the one form of results."""

from pathlib import Path

import pytest

from policybridge_bench.results import Measured, Run
from policybridge_serdes import SERDES
from tests.bench.running import bench, measured

ROOT = Path(__file__).parents[2]


def ways(run: Run) -> dict[str, Measured]:
    return {each.case.way: each for each in run.cases}


def test_serdes_tells_what_encoding_and_decoding_cost(tmp_path: Path) -> None:
    run = measured(tmp_path, "serdes", "--payloads", "inliner,graph", "--seconds", "0.01")
    assert {(each.case.serdes, each.case.payload, each.case.way) for each in run.cases} == {
        (serdes, payload, way)
        for serdes in SERDES.names()
        for payload in ("inliner", "graph")
        for way in ("encode", "decode")
    }
    assert all(one.p50 > 0 for each in run.cases for one in each.rounds)


def test_start_tells_how_soon_a_server_is_ready_and_its_memory(tmp_path: Path) -> None:
    (each,) = measured(tmp_path, "start").cases
    assert 0 < each.rounds[0].p50 < 60e6
    assert each.rounds[0].server_rss is not None
    assert each.rounds[0].server_rss > 10e6


def test_sessions_tells_what_each_open_session_takes(tmp_path: Path) -> None:
    run = measured(tmp_path, "sessions", "--count", "50")
    assert {each.case.way: each.rounds[0].count for each in run.cases} == {"socket": 50, "grpc": 50}
    assert list(run.figures) == [
        f"{way}: once {stage}, KB of the server for each session"
        for way in ("grpc", "socket")
        for stage in ("opened", "asked", "closed")
    ]


def test_sessions_refuses_a_way_that_has_none() -> None:
    ended = bench("sessions", "--ways", "grpc-unary", "--count", "2")
    assert ended.status == 2
    assert "--ways takes socket, grpc, grpc-unix" in ended.errors


def test_overhead_sets_the_harness_beside_a_bare_loop(tmp_path: Path) -> None:
    run = measured(tmp_path, "overhead", "--generators", "wire")
    assert [each.case.generator for each in run.cases] == ["wire", "bare-loop"]
    assert list(run.figures) == ["wire: p50 beyond the bare loop, µs"]


def test_unary_measures_evaluate_and_model_infer_with_named_inputs_and_with_one_tensor(tmp_path: Path) -> None:
    chosen = "policybridge/grpc-unary,policybridge/grpc-infer,python-grpc-echo/unary"
    run = measured(tmp_path, "unary", "--contenders", chosen, "--baseline", "python-grpc-echo/unary")
    assert {(each.case.contender, each.case.way, each.case.payload) for each in run.cases} == {
        (contender, way, payload)
        for contender, way in (
            ("policybridge", "grpc-unary"),
            ("policybridge", "grpc-infer"),
            ("python-grpc-echo", "unary"),
        )
        for payload in ("inliner", "vector")
    }


def test_trees_measures_another_checkout_beside_this_one_and_compares_them() -> None:
    short = ["--rounds", "2", "--seconds", "0.1", "--warm-up", "0.05", "--clients", "1", "--generators", "wire"]
    ended = bench("trees", "--python", ROOT, *short, "--limit", "100")
    assert ended.status == 0, ended.errors
    assert "other socket" in ended.output
    assert "p50 / other" in ended.output
    assert "times as bad" in ended.output


def test_trees_says_that_the_server_of_the_other_tree_runs(tmp_path: Path) -> None:
    for root in ("proto", "serdes", "server", "clients/python/policybridge_client"):
        (tmp_path / root).mkdir(parents=True)
    (tmp_path / "clients/python/policybridge_client/__init__.py").touch()
    (tmp_path / "clients/python/policybridge_client/cli.py").write_text("raise SystemExit('this is the other tree')")
    ended = bench("trees", "--python", tmp_path, "--generators", "wire")
    assert ended.status == 2
    assert "this is the other tree" in ended.errors


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "trees needs --python"), (["--python", ROOT / "tests"], "is no checkout of PolicyBridge")],
)
def test_trees_says_what_it_needs(words: list[object], message: str) -> None:
    ended = bench("trees", *words)
    assert ended.status == 2
    assert message in ended.errors

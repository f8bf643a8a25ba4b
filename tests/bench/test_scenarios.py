"""The scenarios beside load: each does its measurement and writes it in the one form of results."""

import shutil
from pathlib import Path

import pytest

from policybridge_bench.results import read_json
from policybridge_serdes import SERDES
from tests.bench.running import bench, measured, peers

ROOT = Path(__file__).parents[2]


LAUNCHER = """#!/bin/sh
while [ "$1" != -- ]; do
  if [ "$1" = --stats ]; then echo '{"decisions": 5}' > "$2"; fi
  shift
done
shift
exec "$@"
"""
"""Runs a compiler as policybridge-run does, without a server."""


def test_serdes_tells_what_encoding_and_decoding_cost(tmp_path: Path) -> None:
    run = measured(tmp_path, "serdes", "--payloads", "inliner,graph", "--seconds", "0.01", by=peers)
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
    run = measured(tmp_path, "overhead", "--generators", "wire", by=peers)
    assert [each.case.generator for each in run.cases] == ["wire", "bare-loop"]
    assert list(run.figures) == ["wire: p50 beyond the bare loop, µs"]


def test_unary_measures_evaluate_and_model_infer_with_named_inputs_and_with_one_tensor(tmp_path: Path) -> None:
    chosen = "policybridge/grpc-unary,policybridge/grpc-infer,python-grpc-echo/unary"
    run = measured(tmp_path, "unary", "--contenders", chosen, "--baseline", "python-grpc-echo/unary", by=peers)
    assert {(each.case.contender, each.case.way, each.case.payload) for each in run.cases} == {
        (contender, way, payload)
        for contender, way in (
            ("policybridge", "grpc-unary"),
            ("policybridge", "grpc-infer"),
            ("python-grpc-echo", "unary"),
        )
        for payload in ("inliner", "vector")
    }


def test_session_measures_sessions_beside_echoes_and_the_model_alone(tmp_path: Path) -> None:
    short = ["--rounds", "1", "--seconds", "0.05", "--clients", "1,2"]
    file = tmp_path / "session.json"
    ended = peers("session", *short, "--json", file)
    assert ended.status == 0, ended.errors
    found = {
        (each.case.contender, each.case.way, each.case.generator, each.case.clients) for each in read_json(file).cases
    }
    assert found == {
        ("policybridge", "socket", "wire", 1),
        ("policybridge", "socket", "wire", 2),
        ("policybridge", "socket", "python", 1),
        ("policybridge", "grpc", "python", 1),
        ("model", "alone", "python", 1),
        ("python-socket-echo", "unix", "wire", 1),
        ("python-grpc-echo", "stream", "python", 1),
    }
    assert "socket: 2 clients / 1, decisions/s" in ended.output
    assert "grpc, python: (p50 - model) / bare echo" in ended.output


def test_ledger_measures_a_server_that_records_and_says_how_much_it_recorded(tmp_path: Path) -> None:
    run = measured(tmp_path, "ledger", "--ways", "socket", "--generators", "wire")
    decisions = sum(one.count for each in run.cases for one in each.rounds if each.case.contender == "recording")
    assert run.figures["decisions recorded"] + run.figures["decisions lost"] >= decisions > 0
    assert run.figures["bytes for each decision"] > 0


def test_telemetry_measures_a_server_beside_one_that_counts_nothing_and_one_that_traces(tmp_path: Path) -> None:
    run = measured(tmp_path, "telemetry", "--ways", "socket", "--generators", "wire")
    assert {each.case.name.split()[0] for each in run.cases if each.case.way == "socket"} == {
        "uncounted",
        "policybridge",
        "traced",
    }
    (scrape,) = (each for each in run.cases if each.case.way == "scrape")
    assert scrape.rounds[0].count > 0


def test_inference_measures_model_infer_beside_evaluate(tmp_path: Path) -> None:
    run = measured(tmp_path, "inference", by=peers)
    assert {each.case.way for each in run.cases} == {"grpc-tensors", "grpc-infer"}
    assert {(each.case.payload, each.case.backend) for each in run.cases} == {
        ("vector", "onnx"),
        ("inliner", "onnx"),
        ("inliner", "onnx-named"),
    }


def test_mlbridge_measures_a_foreign_clients_call_beside_evaluate(tmp_path: Path) -> None:
    run = measured(tmp_path, "mlbridge", by=peers)
    assert {(each.case.way, each.case.serdes) for each in run.cases} == {
        ("grpc-advice", ""),
        ("grpc-unary", "bitstream"),
        ("grpc-unary", "protobuf"),
    }


def test_publish_measures_publishing_alone_and_under_clients_that_check_every_answer(tmp_path: Path) -> None:
    run = measured(tmp_path, "publish", "--versions", "4", "--seconds", "1", by=peers)
    assert {each.case.way for each in run.cases} == {
        "publish-weights",
        "publish-files",
        "socket-quiet",
        "socket-publishing",
    }
    assert 1 <= run.figures["versions published under clients"] <= 4
    assert run.figures["sessions"] > 0


def test_launcher_runs_the_same_compilation_with_each_host_and_without_one(tmp_path: Path) -> None:
    compiler = shutil.which("clang-22")
    if compiler is None:
        pytest.skip("clang-22 is not installed")
    launcher = tmp_path / "launcher"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    words = ["--launcher", launcher, "--compiler", compiler]
    run = measured(tmp_path, "launcher", *words)
    assert len(run.cases) == 9
    assert run.figures["asks-often: decisions"] == 5
    assert {each.case.contender for each in run.cases} == {"compiler", "policybridge-run", "policybridge run"}


def test_launcher_says_that_it_needs_the_program() -> None:
    ended = bench("launcher")
    assert ended.status == 2
    assert "--launcher" in ended.errors


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

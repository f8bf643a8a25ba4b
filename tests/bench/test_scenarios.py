"""The scenarios beside load: each does its measurement and tells it."""

import json
from pathlib import Path
from typing import Any

from policybridge_serdes import SERDES
from tests.bench.running import bench


def told(folder: Path, *arguments: object) -> dict[str, Any]:
    ended = bench(*arguments, "--rounds", "1", "--json", folder / "told.json")
    assert ended.status == 0, ended.errors
    found: dict[str, Any] = json.loads((folder / "told.json").read_bytes())
    return found


def test_serdes_tells_what_encoding_and_decoding_cost(tmp_path: Path) -> None:
    rows = told(tmp_path, "serdes", "--serdes", "all", "--seconds", "0.1", "--payloads", "inliner,graph")
    assert set(rows) == {f"{serdes} {payload}" for serdes in SERDES.names() for payload in ("inliner", "graph")}
    assert all(row["encode"] > 0 and row["decode"] > 0 for row in rows.values())


def test_start_tells_how_soon_a_server_is_ready_and_its_memory(tmp_path: Path) -> None:
    (row,) = told(tmp_path, "start").values()
    assert 0 < row["seconds"] < 60
    assert row["rss"] > 10e6


def test_sessions_tells_what_each_open_session_takes(tmp_path: Path) -> None:
    rows = told(tmp_path, "sessions", "--count", "50")
    assert set(rows) == {"socket", "grpc"}
    assert all({"opened", "asked", "closed"} == set(row) for row in rows.values())


def test_overhead_sets_the_harness_beside_a_bare_loop() -> None:
    ended = bench("overhead", "--rounds", "1", "--seconds", "0.1", "--generators", "python")
    assert ended.status == 0, ended.errors
    assert "bare loop" in ended.output
    assert "harness, client in Python" in ended.output

"""The demo's command."""

import json
import subprocess
import sys
from pathlib import Path

ONLY = ["--only", "crypt_", "--jobs", "2"]


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "policybridge_demo", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_prints_a_table_and_exits_with_0(tmp_path: Path) -> None:
    done = run(*ONLY, "--json", tmp_path / "figures.json")
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("musl", "decisions/s", "p99", "code size", "fallbacks"):
        assert word in done.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["total"]["modules"] == 3
    assert figures["total"]["decisions"] > 100
    assert figures["fallbacks"] == []


def test_a_server_that_is_not_there_makes_it_fail_with_the_reason(tmp_path: Path) -> None:
    done = run(*ONLY, "--server", f"socket:{tmp_path / 'none.sock'}")
    assert done.returncode == 1
    assert "none.sock" in done.stderr


def test_a_policy_that_is_not_there_makes_it_fail_with_the_reason() -> None:
    done = run(*ONLY, "--policy", "nobody")
    assert done.returncode == 1
    assert "'nobody'" in done.stderr


def test_text_that_is_in_no_path_makes_it_fail() -> None:
    assert run("--only", "nowhere").returncode == 1

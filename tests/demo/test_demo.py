"""The demo's command."""

import json
import subprocess
import sys
from pathlib import Path

from policybridge_demo.compilers import zig
from policybridge_demo.corpus import Module, library_root
from policybridge_demo.tuning import STORE
from policybridge_train.objects.elf import ObjectFile

ONLY = ["--only", "crypt_", "--jobs", "2"]


def run(*arguments: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "policybridge_demo", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


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


def test_it_ends_with_what_tuning_takes_off_its_modules_and_the_store_applies_to_the_same_commands(
    tmp_path: Path,
) -> None:
    module = Module("libcxx/src/ios.cpp")
    done = run("--only", module.path, "--tune", "3", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.partition("tuning 1 of the modules for 3 seconds:")[2].rstrip().splitlines()
    (table,) = (line for line in lines if line.split()[:2] == ["libcxx", "1"])
    assert (
        lines[-1] == "The figures are those of the very modules that were tuned. The decisions apply without a server."
    )
    text_before, text_after, exec_after = (int(table.split()[n].replace(",", "")) for n in (2, 3, 7))
    assert text_after <= text_before
    words = [sys.executable, "-m", "policybridge_client.cli", "run", "--decisions", str(tmp_path / STORE), "--"]
    subprocess.run([*words, *zig(module, tmp_path / "tuned.o")], cwd=library_root(), check=True)
    assert ObjectFile.read(tmp_path / "tuned.o").exec == exec_after


def test_what_keeps_it_from_tuning_is_told_and_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / ".cache").touch()
    done = run("--only", "cxa_vector", "--tune", "3", cwd=tmp_path)
    assert done.returncode == 0
    assert "the tuning failed: " in done.stderr

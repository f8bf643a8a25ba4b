"""The command ``policybridge policies``."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from policybridge_client.policies import save_weights
from tests.commands import Told, told, unread
from tests.conftest import ServerFactory
from tests.server.publishing.policies import TOML, write_adder, write_policy

Cli = Callable[..., Told]


@pytest.fixture
def cli(server_factory: ServerFactory, tmp_path: Path) -> Cli:
    write_policy(tmp_path / "policies")
    server = server_factory(tmp_path / "policies", "--allow-publish")
    return lambda *words: told("policies", *words, "--server", server.grpc)


def test_a_policy_is_published_named_shown_and_retired_from_the_command_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(TOML + 'description = "adds"\n')
    files = write_adder(tmp_path / "files", 1)
    first = cli("publish", "fresh", files, "--policy-toml", tmp_path / "policy.toml", "--alias", "stable")
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith("fresh@1 sha256:")
    (tmp_path / "w.safetensors").write_bytes(save_weights({"own": np.array([[2]], np.int64)}))
    assert cli("publish-weights", "fresh@stable", tmp_path / "w.safetensors").stdout.startswith("fresh@2 sha256:")
    assert cli("alias", "fresh", "stable", 2).stdout == "fresh@stable is 2, before 1\n"
    table = cli("list").stdout.splitlines()
    assert table[0].split() == ["POLICY", "LATEST", "VERSIONS", "BACKEND", "DESCRIPTION"]
    assert table[2].split() == ["fresh", "2", "2", "onnx", "adds"]
    shown = cli("show", "fresh").stdout.splitlines()
    assert shown[:3] == ["fresh (onnx) adds", "  takes x: int64_t[1]", "  gives advice: int64_t[1]"]
    assert shown[4].split()[:3] == ["2", "stable", "latest"]
    assert cli("retire", "fresh", 1).stdout == "fresh@1 is retired\n"


def test_json_has_the_same_for_programs(cli: Cli) -> None:
    shown = json.loads(cli("show", "adder", "--json").stdout)
    assert shown["summary"]["latest"] == 1
    assert shown["versions"][0]["features"] == ["x: int64_t[1]"]
    assert json.loads(cli("list", "--json").stdout)[0]["name"] == "adder"


def test_a_reader_that_stops_reading_is_no_error(server_factory: ServerFactory, tmp_path: Path) -> None:
    write_policy(tmp_path / "policies")
    server = server_factory(tmp_path / "policies")
    assert unread("policies", "list", "--server", server.grpc) == (0, "")


def test_a_refusal_is_told_with_an_exit_status(cli: Cli, tmp_path: Path) -> None:
    refused = cli("retire", "adder", 1)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "policybridge policies: adder@1 is latest; let these name another version first\n"
    missing = cli("publish-weights", "adder", tmp_path / "none")
    assert (missing.returncode, missing.stdout) == (2, "")

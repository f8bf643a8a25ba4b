"""A plugin with the policy inside: no server, and the output that the server's policy gives."""

import json
from pathlib import Path

import pytest

from policybridge_client.cli import main
from tests.native.conftest import MLIR_MAJOR, Target
from tests.native.mlir.conftest import Plugin, run_mlir
from tests.native.mlir.modules import suite

SIZES = "sizes=0,4,8,16,32,64,128 default=32"


@pytest.fixture
def embedded(request: pytest.FixtureRequest, native: Target, plugin: Plugin, repository: Path, tmp_path: Path) -> Path:
    assert plugin.path.exists(), "MLIR's headers are there"
    build = native(f"policybridge-mlir-embedded-{MLIR_MAJOR}")
    file = tmp_path / "my tiles.so"
    policy = getattr(request, "param", "trees")
    words = ["embed", policy, "--repository", str(repository), "--for", f"mlir-{MLIR_MAJOR}", "-o", str(file)]
    assert main([*words, "--build", str(build)]) == 0
    return file


def test_a_policy_in_a_plugin_tiles_as_the_servers_does(plugin: Plugin, embedded: Path, tmp_path: Path) -> None:
    (tmp_path / "suite.mlir").write_text(suite())
    asked = plugin.tile(tmp_path / "suite.mlir", "trees", SIZES, stats=str(tmp_path / "asked.json"), evaluate="there")
    pass_ = f"builtin.module(policybridge-tile{{{SIZES} stats={tmp_path}/embedded.json}})"
    words = [f"--load-pass-plugin={embedded}", f"--pass-pipeline={pass_}", str(tmp_path / "suite.mlir")]
    alone = run_mlir(words)
    assert (asked.status, asked.said, alone.status, alone.said) == (0, "", 0, "")
    assert alone.text == asked.text
    told = [json.loads((tmp_path / name).read_text()) for name in ("asked.json", "embedded.json")]
    assert len(told[0]["advice"]) > 3
    assert all(told[0][key] == told[1][key] for key in ("policy", "decisions", "advice"))
    assert b"policybridge-embedded: trees@1 sha256:" in embedded.read_bytes()


@pytest.mark.parametrize("embedded", ["old-trees"], indirect=True)
def test_outside_of_its_scope_a_policy_in_a_plugin_leaves_the_default_tiles_and_tells_why_as_the_servers_does(
    plugin: Plugin, embedded: Path, tmp_path: Path
) -> None:
    (tmp_path / "suite.mlir").write_text(suite())
    asked = plugin.tile(tmp_path / "suite.mlir", "old-trees", SIZES)
    pass_ = f"builtin.module(policybridge-tile{{{SIZES}}})"
    alone = run_mlir([f"--load-pass-plugin={embedded}", f"--pass-pipeline={pass_}", str(tmp_path / "suite.mlir")])
    assert alone == asked
    assert alone.said.count("old-trees@1 is for llvm 5 or 6, and the compilation has") == 1

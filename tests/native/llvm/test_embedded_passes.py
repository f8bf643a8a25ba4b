"""Policies of functions' passes inside a plugin: the same decisions and the same object as by the server's policy."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from policybridge_client.cli import main
from policybridge_client.decisions.passes import ALTERNATIVES
from policybridge_server.repository import BUNDLED
from tests.conftest import RunningServer
from tests.native.conftest import MAJORS, Target
from tests.native.llvm.plugins import emit_demo, need
from tests.native.llvm.stores import Made, Tuner
from tests.native.llvm.test_pass_choices import LOOPS, THROWING
from tests.native.llvm.test_pass_sessions import INLINED, NETWORK, NUMBERS
from tests.onnx_models import make_model, write_onnx

BOTH = """
decides = ["inlining_decision", "pass_choice"]

[head]
advice = "pass_choice"

[fill]
inlining_default = 0
loops = 0

[settings.pack.observation]
features = ["inlining_default", "loops"]
"""
KINDS = """
decides = ["inlining_decision", "pass_choice"]

[kinds.inlining_decision]
settings = {file = "inlining.onnx", pack = {observation = {features = ["inlining_default"]}}}
head = {}

[kinds.pass_choice]
settings = {pack = {observation = {features = ["loops"]}}}
head = {advice = "pass_choice"}
"""
POLICIES = ("network", "both", "kinds", "size")

pytestmark = pytest.mark.usefixtures("own_memory")


def scores(inputs: int, choices: int, scored: int) -> onnx.ModelProto:
    """Score one choice by the sum of the inputs, `keep` by a half, and all others by nothing."""
    weights, bias = np.zeros((inputs, choices), np.float32), np.zeros(choices, np.float32)
    weights[:, scored], bias[NUMBERS["keep"]] = 1, 0.5
    nodes = [
        helper.make_node("MatMul", ["observation", "weights"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["logits"]),
    ]
    return make_model(
        nodes,
        {"observation": (onnx.TensorProto.FLOAT, ["batch", inputs])},
        {"logits": (onnx.TensorProto.FLOAT, ["batch", choices])},
        {"weights": weights, "bias": bias},
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_onnx(repository, "network", scores(1, len(ALTERNATIVES), NUMBERS["size"]), NETWORK)
    write_onnx(repository, "both", scores(2, len(ALTERNATIVES), NUMBERS["size"]), BOTH)
    write_onnx(repository, "kinds", scores(1, len(ALTERNATIVES), NUMBERS["size"]), KINDS)
    onnx.save(scores(1, 2, 1), repository / "kinds" / "1" / "inlining.onnx")
    shutil.copytree(BUNDLED / "size", repository / "size")
    return repository


@pytest.fixture(scope="module", params=MAJORS)
def major(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def embedded(major: str, native: Target, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of a plugin with each policy."""
    need(f"clang-{major}")
    build, folder = native(f"policybridge-embedded-{major}"), tmp_path_factory.mktemp("plugins")
    for policy in POLICIES:
        words = [policy, "--repository", str(repository), "--for", f"plugin-{major}", "--build", str(build)]
        assert main(["embed", *words, "-o", str(folder / f"{policy}.so")]) == 0
    return folder


@pytest.fixture
def tuner(major: str, native: Target, tmp_path: Path) -> Tuner:
    return Tuner.of(native, major, tmp_path)


def compiled(major: str, plugin: Path, source: Path, *flags: str, said: str = "") -> Made:
    """Compile with a policy in a plugin, which has no options."""
    folder = source.parent
    environment = {**os.environ, "POLICYBRIDGE_STATS": str(folder / "stats.json")}
    driver = need(f"clang-{major}" if source.suffix == ".c" else f"clang++-{major}")
    words = [driver, "-w", *flags, f"-fpass-plugin={plugin}", "-c", str(source), "-o", str(folder / "made")]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, said)
    return Made(0, (folder / "made").read_bytes(), done.stderr, folder)


def told(made: Made) -> dict[str, Any]:
    """Read what a compilation says of the policy's decisions."""
    stats = json.loads((made.folder / "stats.json").read_text())
    return {key: stats[key] for key in ("policy", "decisions", "advice", "passes", "fallback", "error")}


@pytest.mark.parametrize(
    ("compilation", "policy"),
    [
        (compilation, policy)
        for compilation in ("loops.c -Oz", "loops.c -O2 -g", "throwing.cpp -Oz", "throwing.cpp -O2 -g")
        for policy in POLICIES
        # Beyond its scope.
        if policy != "size" or "-O2" not in compilation
    ],
)
def test_passes_by_a_policy_in_a_plugin_give_the_object_and_the_statistics_of_the_servers(
    tuner: Tuner, embedded: Path, server: RunningServer, compilation: str, policy: str
) -> None:
    name, *flags = compilation.split()
    source = tuner.folder / name
    source.write_text(LOOPS + INLINED if name == "loops.c" else THROWING)
    served = tuner.compile(source, *flags, server=server.socket, policy=policy)
    wanted = told(served)
    own = compiled(tuner.major, embedded / f"{policy}.so", source, *flags)
    assert own.output == served.output
    assert name != "loops.c" or own.output != tuner.plain(source, *flags)
    assert told(own) == wanted
    assert wanted["passes"]["decisions"] > 1
    assert (wanted["decisions"] > 0) == (policy != "network")


@pytest.mark.parametrize("path", ["libc/musl/src/stdio/vfprintf.c", "libcxx/src/filesystem/operations.cpp"])
def test_the_bundled_policy_of_both_kinds_decides_in_a_plugin_as_on_the_server(
    tuner: Tuner, embedded: Path, server: RunningServer, path: str
) -> None:
    module = emit_demo(tuner.major, path, tuner.folder)
    served = tuner.compile(module, "-x", "ir", "-Oz", server=server.socket, policy="size")
    wanted = told(served)
    own = compiled(tuner.major, embedded / "size.so", module, "-x", "ir", "-Oz")
    assert (own.output, told(own)) == (served.output, wanted)
    assert wanted["passes"]["decisions"] > 5
    assert wanted["decisions"] > 0


def test_a_policy_with_more_alternatives_than_the_plugin_has_is_refused_before_a_plugin_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = len(ALTERNATIVES)
    write_onnx(tmp_path / "policies", "wide", scores(1, count + 1, count), NETWORK)
    words = ["wide", "--repository", str(tmp_path / "policies"), "--for", f"plugin-{MAJORS[-1]}"]
    assert main(["embed", *words, "-o", str(tmp_path / "p.so")]) == 1
    assert f"wide@1 chooses among {count + 1}; llvm-22 has the numbers 0 to {count - 1}" in capsys.readouterr().err


def test_a_policy_of_decisions_that_the_compiler_does_not_ask_for_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = NETWORK.replace('decides = ["pass_choice"]', 'decides = ["pass_choice", "unroll"]')
    write_onnx(tmp_path / "policies", "unrolling", scores(1, len(ALTERNATIVES), 3), toml)
    words = ["unrolling", "--repository", str(tmp_path / "policies"), "--for", f"plugin-{MAJORS[-1]}"]
    assert main(["embed", *words, "-o", str(tmp_path / "p.so")]) == 1
    said = capsys.readouterr().err
    assert "unrolling@1 decides unroll; llvm-22 asks for inlining_decision, pass_choice" in said

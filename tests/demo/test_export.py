"""The bundled policy in every framework: the same decisions of it, and so the same objects."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from policybridge_client.llvm.config import HostConfig
from policybridge_demo.compilation import compile_listening
from policybridge_demo.corpus import Module
from policybridge_demo.export import formats
from policybridge_demo.export.formats import FORMATS, ExportError
from policybridge_demo.export.onnx import save_network
from policybridge_demo.inliner import IMITATION, MODEL, export_imitation, exported_server, read_imitation
from policybridge_demo.server import demo_server
from policybridge_serdes import PolicyReference
from tests.demo.test_demo import ONLY, run
from tests.frameworks import require

MODULES = [
    Module("libc/musl/src/crypt/crypt_md5.c"),
    Module("libc/musl/src/crypt/crypt_sha256.c"),
    Module("libtsan/sanitizer_common/sanitizer_common.cpp"),
]


class Compiled(NamedTuple):
    decisions: list[bytes]
    digest: str


def compile_modules(server: str) -> list[Compiled]:
    return [compile_module(HostConfig(PolicyReference(IMITATION), server, fallback="error"), each) for each in MODULES]


def compile_module(config: HostConfig, module: Module) -> Compiled:
    decisions: list[bytes] = []
    built, _ = compile_listening("zig", config, lambda _, advice: decisions.append(advice.tobytes()), module)
    return Compiled(decisions, built.digest)


@pytest.fixture(scope="module")
def bundled() -> Iterator[list[Compiled]]:
    with demo_server() as server:
        yield compile_modules(server)


def require_format(backend: str) -> None:
    for package in FORMATS[backend].packages:
        require(package)


@pytest.mark.parametrize("backend", FORMATS)
def test_every_framework_decides_as_the_bundled_policy_does(backend: str, bundled: list[Compiled]) -> None:
    require_format(backend)
    with exported_server(backend) as server:
        assert compile_modules(server) == bundled
    decisions = [decision for each in bundled for decision in each.decisions]
    assert len(decisions) > 100
    assert len({*decisions}) == 2


@pytest.mark.parametrize("backend", ["onnx", "torchscript"])
def test_the_table_and_the_figures_name_the_backend(backend: str, tmp_path: Path) -> None:
    require_format(backend)
    done = run(*ONLY, "--backend", backend, "--json", tmp_path / "figures.json")
    assert done.returncode == 0, done.stderr
    assert f"the policy inliner-imitation, exported to {backend}" in done.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["backend"], figures["fallbacks"]) == (backend, [])


def test_the_bundled_model_is_written_anew_as_it_is(tmp_path: Path) -> None:
    save_network(read_imitation(), tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == MODEL.read_bytes()


@pytest.mark.parametrize(
    ("backend", "package", "extras"),
    [
        ("onnx", "onnx", "demo"),
        ("torch", "torch", "demo,torch"),
        ("torchscript", "torch", "demo,torch"),
        ("tensorflow", "tensorflow", "demo,tensorflow"),
        ("litert", "tensorflow", "demo,litert,tensorflow"),
        ("litert", "ai_edge_litert", "demo,litert,tensorflow"),
    ],
)
def test_a_missing_framework_is_named_with_the_command_that_installs_it(
    backend: str, package: str, extras: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name == package else formats)
    with pytest.raises(ExportError, match=re.escape(f"{package!r}: pip install 'policybridge[{extras}]' onnx")):
        export_imitation(backend, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("other", [["--server", "socket:s"], ["--policy", "inlining-default"]])
def test_only_the_imitation_is_exported_and_only_to_the_demos_own_server(other: list[str]) -> None:
    done = run("--backend", "onnx", *other)
    assert done.returncode == 2
    assert "--backend is for the policy inliner-imitation in the demo's own server" in done.stderr

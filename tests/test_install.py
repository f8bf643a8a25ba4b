"""The base install, which goes on compiler machines: the client alone, in an environment of its own."""

import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the ``bin`` folder of an environment with the base install."""
    home = tmp_path_factory.mktemp("install")
    venv.create(home, with_pip=True)
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([home / "bin" / "pip", "install", "--quiet", *constraints, str(ROOT)], check=True)
    return home / "bin"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_python(repository, "echo", answering("observation['x']"))
    with running_server(repository, tmp_path_factory.mktemp("s")) as running:
        yield running


def run(python: Path, script: str) -> str:
    return subprocess.run([python, "-c", script], capture_output=True, text=True, check=True, cwd="/").stdout


def test_nothing_heavy_is_installed(installed: Path) -> None:
    listed = subprocess.run([installed / "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True)
    names = {line.partition("==")[0].lower() for line in listed.stdout.splitlines()}
    assert names - {"pip", "setuptools", "typing_extensions"} == {
        "grpcio",
        "msgspec",
        "numpy",
        "policybridge",
        "protobuf",
    }


@pytest.mark.parametrize("transport", ["socket", "grpc"])
def test_a_model_runner_asks_over_every_transport(installed: Path, server: RunningServer, transport: str) -> None:
    script = f"""
from policybridge_client import ElementType, TensorSpec, open_runner
features, advice = [TensorSpec("x", ElementType.INT64)], TensorSpec("advice", ElementType.INT64)
with open_runner({getattr(server, transport)!r}, policy="echo", features=features, advice=advice) as runner:
    runner["x"] = 42
    print(runner.evaluate())
"""
    assert run(installed / "python", script) == "42\n"


def test_a_backend_that_is_missing_is_named_with_the_command_that_installs_it(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "net" / "1").mkdir(parents=True)
    (tmp_path / "net" / "policy.toml").write_text('backend = "onnx"\n')
    script = f"""
from policybridge_client import ElementType, PolicyBridgeError, TensorSpec, open_runner
spec = TensorSpec("x", ElementType.INT64)
try:
    open_runner("inprocess:{tmp_path}", policy="net", features=[spec], advice=spec)
except PolicyBridgeError as error:
    print(error)
"""
    said = run(installed / "python", script)
    reason = "the backend 'onnx' needs the Python package 'onnxruntime': pip install 'policybridge[onnx]'\n"
    assert said == f"net@1 cannot be loaded: {reason}"


def test_the_command_line_is_there(installed: Path) -> None:
    said = subprocess.run([installed / "policybridge", "--help"], capture_output=True, text=True, check=True).stdout
    assert "run" in said
    assert "serve" in said

"""What is installed: on compiler machines the distribution policybridge-client, which has the client alone."""

import os
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from policybridge_client.cli import COMMANDS
from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python

ROOT = Path(__file__).parent.parent
CLIENT = ROOT / "clients" / "python"
ALONE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""The environment variables of a program that sees the installed packages and not those of this tree."""

CLIENT_PACKAGES = {
    "policybridge",
    "policybridge_core",
    "policybridge_serdes",
    "policybridge_forms",
    "policybridge_client",
}


def install(home: Path, wheel: Path) -> Path:
    """Install a wheel and its dependencies in an environment of its own; give the environment's ``bin`` folder."""
    venv.create(home, with_pip=True)
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([home / "bin" / "pip", "install", "--quiet", *constraints, str(wheel)], check=True)
    return home / "bin"


def build(folder: Path, source: Path) -> Path:
    """Build a distribution's wheel."""
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, source], check=True)
    (wheel,) = folder.iterdir()
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("client-wheel"), CLIENT)


@pytest.fixture(scope="module")
def whole_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"), ROOT)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """Give the ``bin`` folder of an environment with policybridge-client."""
    return install(tmp_path_factory.mktemp("client"), wheel)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, whole_wheel: Path) -> Path:
    """Give the ``bin`` folder of an environment with policybridge and no extra."""
    return install(tmp_path_factory.mktemp("base"), whole_wheel)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_python(repository, "echo", answering("observation['x']"))
    write_python(repository, "never", answering("0"))
    with running_server(repository, tmp_path_factory.mktemp("s")) as running:
        yield running


def files(wheel: Path) -> set[str]:
    """Give the files of the packages in a wheel."""
    with ZipFile(wheel) as opened:
        return {name for name in opened.namelist() if ".dist-info/" not in name}


def project(source: Path) -> dict[str, Any]:
    return dict(tomllib.loads((source / "pyproject.toml").read_text())["project"])


def policybridge(installed: Path, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(installed / "policybridge"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=ALONE)


def test_the_client_s_wheel_has_the_client_the_serdes_the_core_and_the_stubs_alone(wheel: Path) -> None:
    assert {name.partition("/")[0] for name in files(wheel)} == CLIENT_PACKAGES


def test_the_client_s_wheel_has_these_packages_file_by_file_as_the_whole_wheel(wheel: Path, whole_wheel: Path) -> None:
    whole = {name for name in files(whole_wheel) if name.partition("/")[0] in CLIENT_PACKAGES}
    assert files(wheel) - {"policybridge_client/LICENSE"} == whole


def test_both_distributions_have_one_version_one_command_and_the_same_base_dependencies(
    wheel: Path, whole_wheel: Path
) -> None:
    assert wheel.name.split("-")[1] == whole_wheel.name.split("-")[1] == project(ROOT)["version"]
    for name in ("dependencies", "scripts", "requires-python"):
        assert project(CLIENT)[name] == project(ROOT)[name]


def test_the_installed_client_compiles_with_the_decisions_of_a_remote_server(
    installed: Path, server: RunningServer, tmp_path: Path
) -> None:
    (tmp_path / "module.c").write_text(
        "static int twice(int x) { return 2 * x; }\nint four(int x) { return twice(twice(x)); }\n"
    )
    options = ["--policy", "never", "--server", server.grpc, "--fallback", "error", "--stats", "stats.json"]
    compiler = [sys.executable, "-m", "ziglang", "cc", "-Oz", "-c", "module.c"]
    ran = policybridge(installed, "run", *options, "--", *compiler, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "module.o").exists()
    assert re.search(r'"decisions": [1-9]', (tmp_path / "stats.json").read_text())


def test_the_installed_client_says_its_version(installed: Path) -> None:
    assert policybridge(installed, "--version").stdout == f"policybridge {project(ROOT)['version']}\n"


@pytest.mark.parametrize(
    "name", sorted(name for name, target in COMMANDS.own.items() if not target.startswith("policybridge_client"))
)
def test_a_command_that_the_client_lacks_says_which_distribution_has_it(installed: Path, name: str) -> None:
    ran = policybridge(installed, *name.split())
    extra = COMMANDS.own[name].partition(" ")[2]
    assert ran.returncode == 2
    assert ran.stderr == (
        f"policybridge: the command {name!r} comes with the distribution policybridge: "
        f"pip install 'policybridge{extra}'\n"
    )


def run(python: Path, script: str) -> str:
    return subprocess.run([python, "-c", script], capture_output=True, text=True, check=True, cwd="/", env=ALONE).stdout


def test_nothing_heavy_is_installed(installed: Path) -> None:
    listed = subprocess.run(
        [installed / "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True, env=ALONE
    )
    names = {line.partition("==")[0].lower() for line in listed.stdout.splitlines()}
    assert names - {"pip", "setuptools", "typing_extensions"} == {
        "grpcio",
        "msgspec",
        "numpy",
        "policybridge-client",
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


def test_a_backend_that_is_missing_is_named_with_the_command_that_installs_it(base: Path, tmp_path: Path) -> None:
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
    said = run(base / "python", script)
    reason = "the backend 'onnx' needs the Python package 'onnxruntime': pip install 'policybridge[onnx]'\n"
    assert said == f"net@1 cannot be loaded: {reason}"


def test_the_command_line_is_there(installed: Path) -> None:
    said = policybridge(installed, "--help").stdout
    assert "run" in said
    assert "serve" in said

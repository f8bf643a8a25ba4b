"""``policybridge run`` hands a compilation to a launcher of its version that reaches the server."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from policybridge_core.version import version
from tests import plugins
from tests.client.compilers import write_source
from tests.conftest import RunningServer, command
from tests.native.launcher.running import lasting, run
from tests.native.llvm.plugins import need
from tests.plugins.building import install

_PYTHON = {"POLICYBRIDGE_LAUNCHER": ""}
_SAYING = '#!/bin/sh\nif [ "$1" = --version ]; then printf \'%s\\n\' {told}; else echo launched "$@"; fi\n'


def asking(server: str, *options: str) -> list[str]:
    """Give a command line that compiles module.c at a wrong policy, so that the host says something."""
    words = ["--policy", "nobody", "--server", server, *options]
    return [*words, "--", need("clang-22"), "-Oz", "-c", "module.c", "-o", "made.o"]


def said_by(words: Sequence[str], **variables: str) -> str:
    """Give the name of the program that hosted a compilation."""
    environment = {name: value for name, value in os.environ.items() if name != "POLICYBRIDGE_LAUNCHER"} | variables
    done = subprocess.run(command("run", *words), capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr.partition(":")[0]


@pytest.fixture
def on_path(launcher: str, folder: Path) -> str:
    """Give a PATH that begins with a folder in which the launcher lies."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "policybridge-run").symlink_to(launcher)
    return f"{tools}:{os.environ['PATH']}"


@pytest.fixture(autouse=True)
def source(folder: Path) -> Path:
    return write_source(folder)


def test_the_launcher_on_path_hosts_the_compilation(server: RunningServer, on_path: str) -> None:
    assert said_by(asking(server.socket), PATH=on_path) == "policybridge-run"


def test_the_launcher_that_a_variable_names_comes_before_the_one_on_path(
    server: RunningServer, on_path: str, launcher: str
) -> None:
    assert said_by(asking(server.socket), POLICYBRIDGE_LAUNCHER=launcher) == "policybridge-run"
    assert said_by(asking(server.socket), PATH=on_path, **_PYTHON) == "policybridge run"


def test_a_compile_that_the_launcher_takes_waits_for_no_slow_import(launcher: str) -> None:
    python = [sys.executable, "-X", "importtime", "-m", "policybridge_client.cli", "run", "--no-decisions", "--"]
    words = [need("clang-22"), "-Oz", "-c", "module.c", "-o", "made.o"]
    told = [
        subprocess.run(
            [*python, *words],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "POLICYBRIDGE_LAUNCHER": named},
        ).stderr
        for named in (launcher, "")
    ]
    slow = [{name for name in ("numpy", "importlib.metadata") if f" {name}\n" in each} for each in told]
    assert slow[0] == set()
    assert "numpy" in slow[1]


def test_without_a_launcher_python_hosts_the_compilation(server: RunningServer) -> None:
    assert shutil.which("policybridge-run") is None
    assert said_by(asking(server.socket)) == "policybridge run"


def test_an_address_that_the_launcher_does_not_reach_is_left_to_python(server: RunningServer, on_path: str) -> None:
    for address in (f"{server.grpc},serdes=json", f"{server.socket},{server.grpc}", "inprocess:tools"):
        assert said_by(asking(address), PATH=on_path) == "policybridge run"


def test_a_frontend_by_itself_is_left_to_python(server: RunningServer, on_path: str) -> None:
    words = ["--policy", "nobody", "--server", server.socket, "--", need("clang-22"), "-cc1", "-Oz", "-emit-obj"]
    assert said_by([*words, "module.c", "-o", "made.o"], PATH=on_path) == "policybridge run"


def test_a_task_of_another_distribution_is_left_to_python(
    server: RunningServer, on_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = install(Path(plugins.__file__).parent / "distribution", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(parts), prepend=":")
    assert said_by(asking(server.socket, "--task", "inline-too"), PATH=on_path) == "policybridge run"


def test_a_launcher_with_grpc_hosts_compilations_over_grpc(server: RunningServer, grpc_launcher: str) -> None:
    assert said_by(asking(server.grpc), POLICYBRIDGE_LAUNCHER=grpc_launcher) == "policybridge-run"
    assert said_by(asking(f"{server.grpc},serdes=json"), POLICYBRIDGE_LAUNCHER=grpc_launcher) == "policybridge run"


def test_a_launcher_of_another_version_is_passed_over(server: RunningServer, folder: Path) -> None:
    other = folder / "policybridge-run"
    for told in ("'policybridge-run 0.0.9' 'addresses: socket'", "'something else'", "''"):
        other.write_text(_SAYING.format(told=told))
        other.chmod(0o755)
        assert said_by(asking(server.socket), PATH=f"{folder}:{os.environ['PATH']}") == "policybridge run"


def test_the_launcher_gets_the_same_words(server: RunningServer, folder: Path) -> None:
    other = folder / "policybridge-run"
    other.write_text(_SAYING.format(told=f"'policybridge-run {version()}' 'addresses: socket'"))
    other.chmod(0o755)
    words = asking(server.socket, "--label", "a=b c", "--option=x=", "--stats", "%p.json")
    environment = {**os.environ, "POLICYBRIDGE_LAUNCHER": str(other)}
    done = subprocess.run(command("run", *words), capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"launched {' '.join(words)}\n"


def test_a_variable_that_names_no_program_is_an_error_that_says_so() -> None:
    environment = {**os.environ, "POLICYBRIDGE_LAUNCHER": "/nowhere/policybridge-run"}
    words = command("run", *asking("socket:s"))
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert "the launcher that POLICYBRIDGE_LAUNCHER names cannot be started" in done.stderr


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ("--policy echo", "-Oz -c module.c -o made.o"),
        ("--policy never@9 --fallback error", "-Oz -c module.c -o made.o"),
        ("--policy echo", "-Oz -c missing.c -o made.o"),
        ("--policy weight --task priority", "-O2 -c module.c -o made.o"),
    ],
)
def test_the_result_is_the_same_by_either_host(
    server: RunningServer, launcher: str, options: str, arguments: str
) -> None:
    words = [need("clang-22"), *arguments.split()]
    asked = [*options.split(), "--server", server.socket]
    python, native = (
        run(command("run"), asked, words, {**os.environ, "POLICYBRIDGE_LAUNCHER": host}) for host in ("", launcher)
    )
    assert (native.status, native.said, lasting(native.stats), native.output) == (
        python.status,
        python.said,
        lasting(python.stats),
        python.output,
    )


def test_the_launcher_ignores_no_signal_that_python_ignores(folder: Path) -> None:
    other = folder / "policybridge-run"
    script = _SAYING.format(told=f"'policybridge-run {version()}' 'addresses: socket'")
    other.write_text(script.replace('echo launched "$@"', "grep SigIgn /proc/self/status"))
    other.chmod(0o755)
    environment = {**os.environ, "POLICYBRIDGE_LAUNCHER": str(other)}
    words = command("run", *asking("socket:s"))
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    ignored = int(done.stdout.split()[1], 16)
    assert not any(ignored >> (number - 1) & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))

"""Wrong calls of the C ABI, in a program that is written in C."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import RunningServer, running_server
from tests.native.clients import SANITIZED
from tests.native.conftest import Target, sanitized
from tests.repositories import answering, write_python


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_python(repository, "sum", answering('observation["a"] + observation["b"]'))
    with TemporaryDirectory(prefix="pb-") as folder, running_server(repository, Path(folder)) as running:
        yield running


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "sanitized"])
def test_every_mistake_of_a_caller_is_a_status_and_never_a_crash(
    native: Target, server: RunningServer, checked: bool
) -> None:
    build = native("policybridge-c-edges", *(sanitized() if checked else ()))
    # A sanitizer's own memory would not fit into the limit.
    environment = os.environ | SANITIZED | ({} if checked else {"POLICYBRIDGE_LIMIT_MEMORY": "1"})
    done = subprocess.run(
        [build / "bin" / "policybridge-c-edges", server.socket],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

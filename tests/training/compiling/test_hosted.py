"""A compilation under limits whose decisions a policy makes."""

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from policybridge_client.llvm.config import HostConfig
from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.compilation import compile_command
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.policy import compile_hosted
from policybridge_train.compiling.result import CompileResult
from policybridge_train.processes.process import Running, Status
from tests.client.compilers import left_behind, write_source
from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python
from tests.training.corpora import write_corpus
from tests.training.ended import wait_until_gone

_SLOW = """
import time


class Policy:
    def evaluate(self, observation, session):
        time.sleep(600)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "echo", answering('observation["inlining_default"]'))
    write_python(repository, "always", answering("1"))
    write_python(repository, "slow", _SLOW)
    with running_server(repository, tmp_path_factory.mktemp("s")) as running:
        yield running


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Module:
    folder = tmp_path_factory.mktemp("a corpus")
    return write_corpus(folder, {"p/a.c": write_source(folder, "a.c", 3).read_text()}).modules[0]


def _compile(
    server: RunningServer, module: Module, output: Path, policy: str, *, limits: Limits, running: Running | None = None
) -> CompileResult:
    config = HostConfig(policy, server.socket, fallback="error")
    return compile_hosted(compile_command(Compiler.find("zig"), module, output), config, limits, running or Running())


def test_it_makes_the_object_and_counts_the_compilers_own_time(
    server: RunningServer, module: Module, tmp_path: Path
) -> None:
    done = _compile(server, module, tmp_path / "x.o", "echo", limits=Limits())
    assert (done.status, done.message) == (Status.OK, "")
    assert done.seconds > 0
    assert (tmp_path / "x.o").stat().st_size


def test_one_that_waits_too_long_is_ended(server: RunningServer, module: Module, tmp_path: Path) -> None:
    done = _compile(server, module, tmp_path / "slow.o", "slow", limits=Limits(seconds=1))
    assert done.status is Status.TIMEOUT
    wait_until_gone(tmp_path / "slow.o")


def test_one_that_needs_too_much_memory_is_ended(server: RunningServer, module: Module, tmp_path: Path) -> None:
    done = _compile(server, module, tmp_path / "x.o", "echo", limits=Limits(memory=1 << 20))
    assert done.status in (Status.FAILED, Status.CRASHED)


def test_a_policy_that_is_not_there_is_a_failure(server: RunningServer, module: Module, tmp_path: Path) -> None:
    done = _compile(server, module, tmp_path / "x.o", "nobody", limits=Limits())
    assert done.status is Status.FAILED
    assert "nobody" in done.message


def test_a_command_that_starts_no_compiler_is_a_failure(server: RunningServer) -> None:
    config = HostConfig("echo", server.socket, fallback="error")
    done = compile_hosted([sys.executable, "-c", "pass"], config, Limits(), Running())
    assert done.status is Status.FAILED
    assert "no compiler" in done.message


def test_another_thread_can_end_it(server: RunningServer, module: Module, tmp_path: Path) -> None:
    running, output = Running(), tmp_path / "ended.o"

    def compile_until_ended() -> None:
        # The error depends on the moment at which the compilation is ended.
        with suppress(PolicyBridgeError):
            _compile(server, module, output, "slow", limits=Limits(), running=running)

    thread = threading.Thread(target=compile_until_ended)
    thread.start()
    while not any("-cc1" in command and "limited" not in command for command in left_behind(output)):
        assert thread.is_alive()
    running.end()
    thread.join(120)
    assert not thread.is_alive()
    wait_until_gone(output)

"""Limits of a compiler that the LLVM host starts."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.process import CompilerProcess
from policybridge_client.llvm.surroundings import CompilerLimits, Surroundings
from policybridge_core.errors import PreconditionError
from tests.client.compilers import left_behind
from tests.client.test_llvm_signals import words
from tests.conftest import RunningServer

__all__ = ["words"]


@pytest.mark.parametrize("served", [True, False])
def test_a_compiler_is_ended_at_its_time_limit_with_a_policy_and_without(
    server: RunningServer, words: list[str], served: bool
) -> None:
    address = server.socket if served else "socket:/nowhere/server.sock"
    report = run_compiler(words, HostConfig("echo", address), Surroundings(limits=CompilerLimits(seconds=1)))
    assert (report.late, report.status > 128) == (True, True)


def test_a_compiler_that_may_no_longer_run_is_ended(tmp_path: Path) -> None:
    def refused(_: Callable[[], None]) -> AbstractContextManager[object]:
        raise PreconditionError("no more compilers")

    followed = tmp_path / "followed"
    followed.touch()
    with pytest.raises(PreconditionError, match="no more compilers"):
        CompilerProcess(["tail", "-f", str(followed)], Surroundings(counted=refused), {})
    assert left_behind(followed) == []

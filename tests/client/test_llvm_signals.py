"""Signals to the LLVM host that end no wait of its main thread."""

from pathlib import Path
from time import monotonic

import pytest

from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.host import run_compiler
from tests.client.compilers import start
from tests.conftest import RunningServer
from tests.interrupts import interrupted_unnoticed

ENDLESS = 600
"""Seconds that the compiler takes, which asks nothing."""


@pytest.fixture
def words(folder: Path) -> list[str]:
    """Give the command of a compiler that does not end by itself; asked for its version, it answers."""
    compiler = folder / "clang"
    program = " ".join(start("ziglang"))
    script = f"""#!/bin/sh
case " $* " in *" -c "*) exec sleep {ENDLESS};; esac
exec {program} "$@"
"""
    compiler.write_text(script)
    compiler.chmod(0o755)
    (folder / "a.c").write_text("int x;\n")
    return [str(compiler), "-Oz", "-c", "a.c", "-o", "made.o"]


def _interrupted(words: list[str], server: str, waiting_in: str) -> None:
    began = monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted_unnoticed(waiting_in):
        run_compiler(words, HostConfig("echo", server))
    assert monotonic() - began < ENDLESS / 2


def test_the_wait_for_the_compilers_next_question_is_interrupted(server: RunningServer, words: list[str]) -> None:
    _interrupted(words, server.socket, "serve")


def test_the_wait_for_a_compiler_without_a_policy_is_interrupted(words: list[str]) -> None:
    _interrupted(words, "socket:/nowhere/server.sock", "CompilerProcess.wait")

"""Compilers that are killed, that hang, and that must end with whoever started them."""

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from policybridge_train.environments.inlining import InlineForSize
from tests.client.compilers import left_behind
from tests.server.mlbridge.pipes_server import wait_until
from tests.training.ended import wait_until_gone
from tests.training.environments.conftest import Make


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder in which all compilations of this test have theirs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def compilers(place: Path) -> list[int]:
    """Give the processes that compile in ``place``, without their watchdogs."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(place) in command and "-cc1" in command:
            found.append(int(process.name))
    return found


@pytest.mark.parametrize(("number", "why"), [(signal.SIGKILL, "signal 9"), (signal.SIGSTOP, "within 10 seconds")])
def test_a_compiler_that_is_killed_or_hangs_truncates_the_episode_and_the_next_one_is_whole(
    make: Make, place: Path, number: signal.Signals, why: str
) -> None:
    environment = make(InlineForSize, seconds=10)
    environment.reset(seed=1)
    environment.step(0)
    for process in compilers(place):
        os.kill(process, number)
    if number is signal.SIGKILL:
        wait_until(lambda: not compilers(place))
    observation, reward, terminated, truncated, info = environment.step(1)
    assert (reward, terminated, truncated) == (0, False, True)
    assert re.search(f"{why}|status 247", info["error"])
    assert observation in environment.observation_space
    environment.reset()
    assert not environment.step(0)[3]
    environment.close()
    wait_until_gone(place)
    assert list(place.iterdir()) == []


_PLAYS = """
from functools import partial
from policybridge_train.environments.inlining import InlineForSize
{import_}

if __name__ == "__main__":
    several = {vector}([partial(InlineForSize, {calls!r}, compiler="zig")] * 2{more})
    several.reset()
    over = [0, 0]
    while not all(over):
        # Gymnasium: observations, rewards, terminated, truncated, infos; Stable-Baselines3: without truncated.
        result = several.step([1, 1])
        over = [count + bool(ended) for count, ended in zip(over, result[2], strict=True)]
    several.close()
"""


@pytest.mark.parametrize(
    ("vector", "module", "more"),
    [
        ("AsyncVectorEnv", "gymnasium.vector", ""),
        ("AsyncVectorEnv", "gymnasium.vector", ", context='spawn'"),
        ("SubprocVecEnv", "stable_baselines3.common.vec_env", ""),
    ],
)
def test_vector_environments_play_and_leave_nothing_behind(
    calls: Path, place: Path, vector: str, module: str, more: str
) -> None:
    # A program of its own, as users have: by default its environments are forked, which a process with threads such as
    # that of the tests must not do.
    program = place / "plays.py"
    program.write_text(
        _PLAYS.format(import_=f"from {module} import {vector}", vector=vector, calls=str(calls), more=more)
    )
    played = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stderr
    wait_until_gone(place)
    assert [path for path in place.iterdir() if path.name.startswith("policybridge-")] == []


def test_an_environment_that_is_forgotten_ends_its_compiler(calls: Path, place: Path) -> None:
    environment = InlineForSize(calls, compiler="zig")
    environment.reset(seed=1)
    assert left_behind(place)
    del environment
    gc.collect()
    wait_until_gone(place)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_that_ends_the_trainer_ends_the_compiler(calls: Path, place: Path, number: signal.Signals) -> None:
    script = (
        "import sys, time\n"
        "from policybridge_train.environments.inlining import InlineForSize\n"
        f"environment = InlineForSize({str(calls)!r}, compiler='zig')\n"
        "environment.reset(seed=1)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "ready\n"
        assert left_behind(place)
        trainer.send_signal(number)
    wait_until_gone(place)
    wait_until(lambda: not list(place.iterdir()))

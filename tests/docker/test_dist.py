"""The packages of ``make dist`` in empty containers: no tool that compiles ours, no header of LLVM's, no registry.

A reader's way, word by word: the blocks of docs/install.md, with the compiler's version that is tried. They are no part
of `make test`: `make compose` runs them.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.docker.engine import Engine, engine
from tests.docker.images import EMPTY, make_empty
from tests.docs.pages import ROOT, blocks
from tests.docs.reader import Runner
from tests.docs.shell import Command, opened_shell

MAJOR = "22"
PAGE = ROOT / "docs" / "install.md"
SECTIONS = ("Packages", "Tune your own build", "CMake")
NOT_HERE = ("a fragment", "takes", "needs dist/ and root")

pytestmark = pytest.mark.timeout(2700)


@pytest.fixture(scope="module")
def podman() -> Engine:
    made = engine(ROOT / ".cache" / "containers")
    make_empty(made)
    return made


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the packages, with the parts that the tests have compiled already."""
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, str(ROOT / "distribution" / "make.py"), "--output", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@contextmanager
def container(podman: Engine, folder: Path, dist: Path) -> Iterator[tuple[str, ...]]:
    """Start an empty container that sees a folder, and in it ``dist``; give the words that start a bash there."""
    volumes = (f"{folder}:/home/project", f"{dist}:/home/project/dist:ro", f"{ROOT}/docker/wheelhouse:/wheels:ro")
    # No registry is reached: what the packages need are wheels.
    variables = ("PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels", "PIP_DISABLE_PIP_VERSION_CHECK=1")
    options = [word for volume in volumes for word in ("--volume", volume)]
    options += [word for variable in variables for word in ("--env", variable)]
    name = podman("run", "--detach", "--network", "none", *options, EMPTY, "sleep", "infinity").strip()
    try:
        yield ("podman", "exec", "--interactive", "--workdir", "/home/project", name, "bash", "--noprofile", "--norc")
    finally:
        podman("rm", "--force", "--time", "0", name)


@pytest.mark.parametrize("major", ["22", "19"])
def test_the_packages_alone_make_a_project_of_cmake_smaller_word_by_word(
    podman: Engine, dist: Path, tmp_path: Path, major: str
) -> None:
    with (
        container(podman, tmp_path, dist) as bash,
        opened_shell(tmp_path, podman.environment, bash) as shell,
    ):
        shell.run(Command("! command -v g++ llvm-config-22 ccache && ! ls /usr/lib/llvm-*/include/llvm/IR"))
        runner = Runner(tmp_path, shell, dict(os.environ))
        for block in blocks(PAGE):
            if block.heading in SECTIONS and not block.reason.startswith(NOT_HERE):
                runner.run(replace(block, text=block.text.replace(MAJOR, major)))
        shell.run(Command(f"clang++-{major} -Oz words.cpp -o plain"))
        before, after = (int(line.split()[0]) for line in shell.run(Command("size plain build/words"))[1:])
        assert after < before
        told = shell.run(Command(f"policybridge embed inliner --for plugin-{major} -o mine.so && ls mine.so"))
        assert told[-1] == "mine.so"
        compiled = f"clang++-{major} -Oz -c words.cpp -o embedded.o $(test {major} = 22 || echo -fplugin=$PWD/mine.so)"
        shell.run(Command(f"{compiled} -fpass-plugin=$PWD/mine.so"))

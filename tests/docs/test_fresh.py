"""Each tutorial in an environment that has what its first command installs, and nothing else."""

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.docs.pages import GIVEN, ROOT
from tests.docs.reader import Runner
from tests.docs.shell import opened_shell

_TUTORIALS = sorted((ROOT / "docs").glob("tutorial-*.md"))
_INSTALL = re.compile(r"^\$ pip install '\.(\[[\w,]+\])'([^#\n]*)", re.MULTILINE)


@pytest.fixture
def home() -> Iterator[Path]:
    # Not pytest's own folder: its path may be too long for a Unix socket.
    with TemporaryDirectory(prefix="pb-") as name:
        yield Path(name)


def installed(page: Path, home: Path) -> Path:
    """Do the page's first command; give the ``bin`` folder of the environment."""
    found = _INSTALL.search(page.read_text(encoding="utf-8"))
    assert found, f"{page.name} does not begin with pip install"
    extras, more = found.groups()
    venv.create(home, with_pip=True)
    pinned = ["--quiet", "--constraint", str(ROOT / "constraints.txt")]
    words = [home / "bin" / "pip", "install", *pinned, f"{ROOT}{extras}", *more.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment(home / "bin"))
    assert done.returncode == 0, done.stderr
    return home / "bin"


def environment(folder: Path) -> dict[str, str]:
    """Give our environment with this folder's programs first, and without what we import from."""
    ours = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    path = [each for each in os.environ["PATH"].split(os.pathsep) if each != str(Path(sys.executable).parent)]
    return {**ours, "PATH": os.pathsep.join([str(folder), *path]), "POLICYBRIDGE": str(ROOT)}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", _TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_needs_nothing_but_what_its_first_command_installs(page: Path, home: Path) -> None:
    folder, programs = home / "work", installed(page, home / "own")
    shutil.copytree(GIVEN, folder)
    ours = environment(programs)
    with opened_shell(folder, ours) as shell:
        Runner(folder, shell, ours, str(programs / "python")).run_page(page)

"""Every code block of the documentation runs as it stands."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.compiler_cache import launchers
from tests.docs.pages import GIVEN, PAGES, ROOT, blocks
from tests.docs.reader import Runner
from tests.docs.shell import opened_shell

_PAGES_THAT_RUN = [
    page for page in PAGES if any(not block.reason and block.language != "text" for block in blocks(page))
]


@pytest.fixture
def runner() -> Iterator[Runner]:
    # Not pytest's own folder: its path may be too long for a Unix socket.
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        shutil.copytree(GIVEN, folder, dirs_exist_ok=True)
        shutil.copytree(ROOT / "examples", folder / "examples")
        environment = _environment(folder)
        with opened_shell(folder, environment) as shell:
            yield Runner(folder, shell, environment)


def _environment(folder: Path) -> dict[str, str]:
    """Give an environment in which ``pip install ./FOLDER`` installs into the page's folder, without a network.

    ``POLICYBRIDGE`` names this repository, which a page's reader has checked out.
    """
    site = folder / "site-packages"
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    pip = {"PIP_TARGET": str(site), "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    pip |= {"PIP_QUIET": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ours = {"PATH": path, "PYTHONPATH": ":".join(paths), "POLICYBRIDGE": str(ROOT)}
    return {**os.environ, **pip, **launchers(), **ours}


@pytest.mark.parametrize("page", _PAGES_THAT_RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run_as_they_stand(page: Path, runner: Runner) -> None:
    runner.run_page(page)

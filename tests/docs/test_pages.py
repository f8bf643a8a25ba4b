"""Every code block of the documentation runs as it stands."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import randrange
from tempfile import TemporaryDirectory

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks
from tests.docs.shell import Command, Shell, commands, matches, opened_shell
from tests.native.conftest import missing

_PORT = re.compile(r"(127\.0\.0\.1(?::|\", ))([1-9]\d*)")
_GIVEN = Path(__file__).parent / "given"

_PAGES_THAT_RUN = [
    page for page in PAGES if any(not block.reason and block.language != "text" for block in blocks(page))
]


class Runner:
    """Runs the blocks of one page in one folder."""

    def __init__(self, folder: Path, shell: Shell, environment: dict[str, str]) -> None:
        self._folder = folder
        self._shell = shell
        self._environment = environment
        self._ports: dict[str, str] = {}

    def run(self, block: Block) -> None:
        """Do with ``block`` what a reader would do with it."""
        text = _PORT.sub(self._free, block.text)
        if block.needs and shutil.which(block.needs) is None:
            missing(block.needs)
        if block.before:
            self._shell.run(Command(_PORT.sub(self._free, block.before)))
        if block.path:
            self._write(block.path, text)
        elif block.language == "console":
            self._console(text)
        elif block.language == "python":
            self._python(text)
        elif block.language in ("c", "cpp"):
            self._compile(block.language, text)

    def _free(self, address: "re.Match[str]") -> str:
        """Give the address with a free port in place of the page's."""
        host, number = address.groups()
        if number not in self._ports:
            self._ports[number] = str(_free_port())
        return f"{host}{self._ports[number]}"

    def _write(self, path: str, text: str) -> None:
        file = self._folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        if file.suffix == ".py":
            compile(text, path, "exec")

    def _console(self, text: str) -> None:
        for command in commands(text):
            printed = self._shell.run(command)
            if command.shown:
                shown = "\n".join(command.shown)
                assert matches(command.shown, printed), f"`{command.text}` shows\n{shown}\nand prints\n" + "\n".join(
                    printed
                )

    def _python(self, text: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", text],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode:
            raise AssertionError(f"the program ended with {done.returncode}:\n{done.stderr}")

    def _compile(self, language: str, text: str) -> None:
        compiler, standard = ("gcc", "c11") if language == "c" else ("g++", "c++17")
        if shutil.which(compiler) is None:
            missing(compiler)
        include = [f"-I{folder}" for folder in sorted((ROOT / "clients").glob("*/**/include"))]
        done = subprocess.run(
            [compiler, f"-std={standard}", "-fsyntax-only", *include, f"-x{'c' if language == 'c' else 'c++'}", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def _free_port() -> int:
    """Give a port below those that port 0 gives to other tests, which run at the same time."""
    while True:
        port = randrange(20000, 30000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@pytest.fixture
def runner() -> Iterator[Runner]:
    # Not pytest's own folder: its path may be too long for a Unix socket.
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        shutil.copytree(_GIVEN, folder, dirs_exist_ok=True)
        shutil.copytree(ROOT / "examples", folder / "examples")
        environment = _environment(folder)
        with opened_shell(folder, environment) as shell:
            yield Runner(folder, shell, environment)


def _environment(folder: Path) -> dict[str, str]:
    """Give an environment in which ``pip install ./FOLDER`` installs into the page's folder, without a network."""
    site = folder / "site-packages"
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    pip = {"PIP_TARGET": str(site), "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    pip |= {"PIP_QUIET": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, **pip, "PATH": path, "PYTHONPATH": ":".join(paths)}


@pytest.mark.parametrize("page", _PAGES_THAT_RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run_as_they_stand(page: Path, runner: Runner) -> None:
    for block in blocks(page):
        if block.reason or block.language == "text":
            continue
        try:
            runner.run(block)
        except AssertionError as error:
            raise AssertionError(f"{block}: {error}") from error

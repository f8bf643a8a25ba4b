"""What a reader does with the blocks of a page."""

import re
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import randrange

from tests.docs.pages import ROOT, Block, blocks
from tests.docs.shell import Command, Shell, commands, matches
from tests.native.conftest import missing

_PORT = re.compile(r"(127\.0\.0\.1(?::|\", ))([1-9]\d*)")


class Runner:
    """Runs the blocks of one page in one folder.

    Args:
        folder: the folder.
        shell: runs its console blocks.
        environment: of its programs.
        python: runs its Python blocks.

    """

    def __init__(self, folder: Path, shell: Shell, environment: dict[str, str], python: str = sys.executable) -> None:
        self._folder = folder
        self._shell = shell
        self._environment = environment
        self._interpreter = python
        self._ports: dict[str, str] = {}

    @property
    def addresses(self) -> list[str]:
        """The addresses on this machine that the blocks so far have."""
        return [f"127.0.0.1:{port}" for port in self._ports.values()]

    def run_page(self, page: Path) -> None:
        """Run all blocks of a page that can run, in their order."""
        for block in blocks(page):
            if block.reason or block.language == "text":
                continue
            try:
                self.run(block)
            except AssertionError as error:
                raise AssertionError(f"{block}: {error}") from error

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
            [self._interpreter, "-c", text],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
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

"""Runs the commands of docs/gallery.md in a folder of their own."""

import os
import pty
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from policybridge_docs.links import ROOT

_COMMAND: Final = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
_PORT: Final = "127.0.0.1:8000"
_COLUMNS: Final = "110"


def commands() -> list[str]:
    """Return the commands of the page in their order."""
    return _COMMAND.findall((ROOT / "docs" / "gallery.md").read_text(encoding="utf-8"))


class Folder:
    """Where the commands run; a free port stands for the page's.

    Attributes:
        path: the folder.
        address: HOST:PORT of the server's page.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"

    def printed(self, command: str) -> str:
        """Run a command in a terminal of 110 columns and return its output, with colours.

        Raises:
            RuntimeError: it fails; the message has its output.

        """
        with self.started(command) as started:
            return finished(*started)

    @contextmanager
    def started(self, command: str) -> "Iterator[tuple[subprocess.Popen[bytes], int]]":
        """Start a command in a terminal; it is ended at the end. Gives it and the terminal's descriptor."""
        terminal, slave = pty.openpty()
        environment = {**os.environ, "COLUMNS": _COLUMNS, "LINES": "60", "TERM": "xterm-256color"}
        words = shlex.split(command.replace(_PORT, self.address).replace("\\\n", " ").removesuffix("&"))
        process = subprocess.Popen(
            words, cwd=self.path, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        try:
            yield process, terminal
        finally:
            process.terminate()
            process.wait()
            os.close(terminal)


def finished(process: "subprocess.Popen[bytes]", terminal: int) -> str:
    """Wait for the end of a command and return its unread output.

    Raises:
        RuntimeError: it failed; the message has its output.

    """
    said = b"".join(iter(lambda: _read(terminal), b"")).decode(errors="replace").replace("\r\n", "\n")
    if process.wait() != 0:
        raise RuntimeError(f"`{process.args!r}` ended with {process.returncode}:\n{said}")
    return said


def wait_for(word: bytes, terminal: int) -> None:
    """Read until a command has printed ``word``.

    Raises:
        RuntimeError: it ended before.

    """
    said = b""
    while word not in said:
        read = _read(terminal)
        if not read:
            raise RuntimeError(f"it ended without {word!r}: {said.decode(errors='replace')}")
        said += read


def _read(terminal: int) -> bytes:
    with suppress(OSError):  # EIO: nobody writes to the terminal any more
        return os.read(terminal, 65536)
    return b""

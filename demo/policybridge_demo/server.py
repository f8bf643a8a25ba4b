"""The demo's own policy server: a real ``policybridge serve --demo`` in a process of its own."""

import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final, cast

_READY_WITHIN: Final = 60.0
_DRAINED_WITHIN: Final = 30.0


class ServerError(Exception):
    """The server did not start, or did not end as it should."""


@contextmanager
def demo_server() -> Iterator[str]:
    """Serve the bundled policies for as long as the context lasts; gives the server's address.

    Raises:
        ServerError: it did not get ready, or did not end as it should; what it says itself is on standard error.

    """
    with TemporaryDirectory(prefix="policybridge-demo-") as folder:
        with _started(Path(folder) / "policybridge.sock") as process:
            try:
                yield _address(process)
            finally:
                _stop(process)
        if process.returncode:
            raise ServerError(f"policybridge serve ended with status {process.returncode}")


def _started(socket: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "policybridge_client.cli", "serve", "--demo", "--socket", str(socket)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def _address(process: "subprocess.Popen[str]") -> str:
    output = cast("IO[str]", process.stdout)
    if not select.select([output], [], [], _READY_WITHIN)[0]:
        raise ServerError(f"policybridge serve --demo was not ready within {_READY_WITHIN:g} s")
    said = output.readline().split()
    if said[:1] != ["ready"]:
        raise ServerError("policybridge serve --demo did not get ready")
    return said[1]


def _stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_DRAINED_WITHIN)
    except subprocess.TimeoutExpired:
        # Its status then tells that it was killed.
        process.kill()

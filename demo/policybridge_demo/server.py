"""The demo's own policy server: a real ``policybridge serve`` in a process of its own."""

import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final, cast

_READY_WITHIN: Final = 180.0
_DRAINED_WITHIN: Final = 30.0


class ServerError(Exception):
    """The server did not start, or did not end as it should."""


def demo_server(*arguments: str) -> AbstractContextManager[str]:
    """Serve the bundled policies; ``arguments`` are further options. Otherwise like `policy_server`."""
    return policy_server("--demo", *arguments)


@contextmanager
def policy_server(*arguments: str) -> Iterator[str]:
    """Run ``policybridge serve`` with ``arguments`` during the context; yield the server's address.

    Raises:
        ServerError: it did not become ready, or did not end properly; its own messages are on standard error.

    """
    with TemporaryDirectory(prefix="policybridge-demo-") as folder:
        with _started(Path(folder) / "policybridge.sock", arguments) as process:
            try:
                yield _address(process)
            finally:
                _stop(process)
        if process.returncode:
            raise ServerError(f"policybridge serve ended with status {process.returncode}")


def _started(socket: Path, arguments: Sequence[str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "policybridge_client.cli", "serve", "--socket", str(socket)]
    return subprocess.Popen([*command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def _address(process: "subprocess.Popen[str]") -> str:
    output = cast("IO[str]", process.stdout)
    if not select.select([output], [], [], _READY_WITHIN)[0]:
        raise ServerError(f"policybridge serve was not ready within {_READY_WITHIN:g} s")
    said = output.readline().split()
    if said[:1] != ["ready"]:
        raise ServerError("policybridge serve did not become ready")
    return said[1]


def _stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_DRAINED_WITHIN)
    except subprocess.TimeoutExpired:
        # The status then shows that it was killed.
        process.kill()

"""Servers that listen in other ways than on gRPC and a socket together."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.forked import start_server


@contextmanager
def started(
    *arguments: object, log: Path | None = None, before: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run ``policybridge serve``; give the process, and the addresses of its ready line.

    Args:
        arguments: of the command.
        log: a file for its standard error; by default it goes where the test's goes.
        before: the words of a program that runs the server.

    """
    with _opened(log) as errors:
        process = start_server(*arguments, before=before, errors=errors.fileno() if errors else None)
    assert process.stdout is not None
    try:
        word, *addresses = process.stdout.readline().split() or [""]
        assert word == "ready", f"the server ended with {process.wait(60)}{log.read_text() if log else ''}"
        yield process, addresses
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.stdout.close()


@contextmanager
def _opened(log: Path | None) -> Iterator[TextIO | None]:
    if log is None:
        yield None
    else:
        with log.open("w") as file:
            yield file


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run ``policybridge serve``; give the process, and what its ready line names."""
    with started(*arguments) as (process, addresses):
        yield process, " ".join(addresses)

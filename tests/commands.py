"""Commands of ``policybridge`` in the test's own process: a process each would take longer to start than to work."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from typing import NamedTuple

import pytest

from policybridge_client.cli import main
from tests.conftest import command


class Told(NamedTuple):
    """A command's exit status and output."""

    returncode: int
    stdout: str
    stderr: str


def unread(*words: object) -> tuple[int, str]:
    """Run a command whose output nobody reads, as `head` ends; give the exit status and the errors."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(command(*words), stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)
    return done.returncode, done.stderr


def told(*words: object) -> Told:
    """Run a command to its end; its output goes to no file descriptor."""
    with _written("stdout") as output, _written("stderr") as errors:
        try:
            status = main([*map(str, words)])
        except SystemExit as end:
            # As of argparse.
            status = end.code if isinstance(end.code, int) else 1
        return Told(status, _text(output), _text(errors))


@contextmanager
def _written(name: str) -> Iterator[TextIOWrapper]:
    with pytest.MonkeyPatch.context() as patch, TextIOWrapper(BytesIO(), "utf-8") as file:
        patch.setattr(sys, name, file)
        yield file


def _text(file: TextIOWrapper) -> str:
    file.seek(0)
    return file.read()

"""Servers that listen in other ways than on gRPC and a socket together."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.conftest import command


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run ``policybridge serve``; give the process, and the one address of its ready line."""
    process = subprocess.Popen(command("serve", *arguments), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        word, _, address = process.stdout.readline().strip().partition(" ")
        assert word == "ready", f"the server ended with {process.wait()}"
        yield process, address
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
            process.stdout.close()

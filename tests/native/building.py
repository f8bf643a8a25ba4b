"""Build the native programs that tests need, before them: ``python -m tests.native.building``, or ``make natives``.

Tests build them, too. Here a build uses the cores that something else leaves idle. Where tools are missing, the tests
that need them skip or fail.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.bench.running import CACHE
from tests.fuzzing import native as fuzzers
from tests.native.conftest import built, sanitized
from tests.peers.native import program
from tests.server.mlbridge import mlbridge_native, pipes_native

_OF_THREADS = ("grpc-channel-driver", "policybridge-cpp-client", "policybridge-grpc", "policybridge-early")
_PEERS = ("policybridge-load", "policybridge-grpc-echo", "policybridge-socket-echo")


def build_all() -> Iterator[str]:
    """Build each group of programs; give its name after it."""
    built("all")
    yield "plain"
    built("all", *sanitized())
    yield "for address errors"
    for target in _OF_THREADS:
        built(target, *sanitized("thread"))
    yield "for races"
    if not fuzzers.missing():
        for name in fuzzers.NATIVE:
            fuzzers.build(name)
        yield "fuzzers"
    for name in _PEERS:
        program(name, CACHE)
    yield "load generator and echoes"
    with suppress(pytest.skip.Exception):
        mlbridge_native.built()
        pipes_native.built(pipes_native.NATIVE / "pipes_compiler.cpp")
        pipes_native.environment_compiler()
        yield "foreign compilers"


def main() -> int:
    """Build."""
    lacking = [tool for tool in ("cmake", "ninja", "g++", "grpc_cpp_plugin") if shutil.which(tool) is None]
    if lacking:
        print(f"nothing is built before the tests: {', '.join(lacking)} is missing")
        return 0
    for name in build_all():
        print(f"built: {name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

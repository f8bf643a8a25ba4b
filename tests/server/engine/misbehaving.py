"""Policies that misbehave at a word of their client's, and what tests ask them and their servers."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, Connection
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec, pack
from tests.conftest import RunningServer, command

X = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("advice", ElementType.INT64))

OBEYS = """
    import ctypes, os, subprocess, sys, time
    import numpy as np

    class Policy:
        def __init__(self):
            self.count = 0

        def start(self, session):
            session.state["count"] = 0

        def evaluate(self, observation, session):
            session.state["count"] += 1
            value = observation["x"].item()
            if value < 0:
                exec({-1: "sys.exit(3)",
                      -2: "raise KeyboardInterrupt",
                      -3: "raise GeneratorExit",
                      -4: "while True: time.sleep(0.01)",
                      -5: "os._exit(7)",
                      -6: "ctypes.string_at(0)",
                      -7: "bytearray(1 << 33)",
                      -8: "print('spoken'); subprocess.run(['echo', 'shouted'])",
                      -9: "raise Silent",
                      -10: "open(session.options['marker'], 'w'); ctypes.PyDLL(None).sleep(600)"}[value])
            return value * 100 + session.state["count"]

    class Silent(Exception):
        def __str__(self):
            raise SystemExit
    """
EXIT, INTERRUPT, GENERATOR_EXIT, HANG, DIE, CRASH, FILL, PRINT, SILENT, HOLD = range(-1, -11, -1)


def open_session(connection: Connection, policy: str = "obeys") -> ClientSession:
    return connection.open(PolicyReference.parse(policy), X, SessionOptions())


def ask(session: ClientSession, value: int) -> int:
    return int(session.evaluate(pack(X.features, {"x": value}))["advice"].item())


@contextmanager
def connected(server: "RunningServer | Speaking") -> Iterator[Connection]:
    connection = connect(server.socket, timeout=60)
    try:
        yield connection
    finally:
        connection.close()


def health(server: RunningServer, name: str = "") -> str:
    """Give the health of a policy, or of the server, as grpc.health.v1 tells it."""
    with grpc.insecure_channel(server.grpc.removeprefix("grpc:")) as channel:
        reply = HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name), timeout=60)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))


class Speaking:
    """A server whose standard output and standard error are read; ended with its block.

    Attributes:
        socket: its address.
        output: what it wrote to standard output after its first line, once it has ended.
        errors: what it wrote to standard error.

    """

    def __init__(self, repository: Path, folder: Path, *arguments: object) -> None:
        listen = ["--repository", repository, "--socket", folder / "s", "--allow-python"]
        self._process = subprocess.Popen(
            command("serve", *listen, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.socket = self._process.stdout.readline().split()[1]
        self.output = self.errors = ""

    def __enter__(self) -> "Speaking":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self.output, self.errors = self._process.communicate(timeout=60)
        finally:
            self._process.kill()

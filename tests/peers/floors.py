"""Floors: the model without a server, and echoes without a model."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from policybridge_bench.contenders.contract import Contender, Route, Serving, Setting
from policybridge_bench.load import Load
from policybridge_bench.payloads import payload
from policybridge_bench.policies import backends_of, policy_name, write_policies
from policybridge_bench.processes import module, server
from tests.peers.clients import PROGRAM
from tests.peers.native import program

_SOCKET_WAYS = {"socket": "unix", "tcp": "tcp"}


class ModelAlone(Contender):
    """The model in the client's process: a request is one evaluation."""

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Write the policies."""
        write_policies(setting.folder, setting.payloads, setting.backends)
        routes = []
        for name in setting.payloads:
            for backend in setting.backends:
                if backend in backends_of(name):
                    policy = policy_name(name, backend)
                    load = Load(kind="model", address=str(setting.folder), policy=policy, payload=name, program=PROGRAM)
                    routes.append(Route("alone", load, ("python",), backend))
        yield Serving(None, routes)


class _Echo(Contender):
    kind: ClassVar[str]
    python: ClassVar[bool] = False

    def prepare(self, cache: Path) -> None:
        """Build it."""
        self._command(cache)

    def _command(self, cache: Path, *arguments: object) -> list[str]:
        if self.python:
            return module("tests.peers.echoes", self.kind, *arguments)
        return [str(program(f"policybridge-{self.kind}-echo", cache)), *map(str, arguments)]


class SocketEcho(_Echo):
    """A bare socket with one thread and epoll: in C++, by TCP and Unix; or in Python, by Unix."""

    kind = "socket"

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve each payload by a process of its own: a bare echo knows a message by its size alone."""
        with contextlib.ExitStack() as stack:
            routes, pid = [], None
            for name in setting.payloads:
                layout = payload(name).signature.features
                if layout.fixed:
                    command = self._command(setting.cache, setting.folder / name, layout.size)
                    started = stack.enter_context(server(command))
                    pid = started.pid
                    for address in started.addresses:
                        load = Load(kind="wire", address=address, payload=name)
                        routes.append(Route(_SOCKET_WAYS[address.partition(":")[0]], load, ("native", "wire")))
            yield Serving(pid if len(setting.payloads) == 1 else None, routes)


class GrpcEcho(_Echo):
    """gRPC, unary and streaming: in C++, a synchronous service by TCP and Unix; or grpcio's asyncio server, by TCP."""

    kind = "grpc"

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve."""
        with server(self._command(setting.cache, "127.0.0.1:0", f"unix:{setting.folder}/echo")) as started:
            yield Serving(started.pid, list(_calls(started.addresses, setting.payloads)))


class PythonSocketEcho(SocketEcho):
    """The same in Python."""

    python = True


class PythonGrpcEcho(GrpcEcho):
    """The same in Python."""

    python = True


def _calls(addresses: Sequence[str], payloads: Sequence[str]) -> Iterator[Route]:
    for address in addresses:
        suffix = "-unix" if address.startswith("grpc:unix:") else ""
        for name in payloads:
            for way in ("unary", "stream"):
                load = Load(kind=f"echo-{way}", address=address, payload=name)
                yield Route(way + suffix, load, ("native", "python"))

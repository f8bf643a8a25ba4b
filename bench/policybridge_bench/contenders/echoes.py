"""Floors: echoes without a model, native and in Python."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from policybridge_bench.contenders.contract import Route, Serving, Setting
from policybridge_bench.load import Load
from policybridge_bench.native import program
from policybridge_bench.payloads import payload
from policybridge_bench.processes import module, server

_SOCKET_WAYS = {"socket": "unix", "tcp": "tcp"}


class SocketEcho:
    """A bare socket in C++: one thread and epoll, TCP and Unix."""

    def prepare(self, cache: Path) -> None:
        """Build it."""
        program("policybridge-socket-echo", cache)

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve."""
        with _sockets([str(program("policybridge-socket-echo", setting.cache))], setting) as serving:
            yield serving


class PythonSocketEcho:
    """A bare socket in Python: the same loop."""

    def prepare(self, cache: Path) -> None:
        """Nothing is missing."""

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve."""
        with _sockets(module("policybridge_bench.echoes", "socket"), setting) as serving:
            yield serving


@contextlib.contextmanager
def _sockets(command: Sequence[str], setting: Setting) -> Iterator[Serving]:
    # A message's size is all that a bare echo knows of it, so that each size has a process of its own.
    with contextlib.ExitStack() as stack:
        routes, pid = [], None
        for name in setting.payloads:
            layout = payload(name).signature.features
            if layout.fixed:
                started = stack.enter_context(server([*command, str(setting.folder / name), str(layout.size)]))
                pid = started.pid
                for address in started.addresses:
                    load = Load(kind="wire", address=address, payload=name)
                    routes.append(Route(_SOCKET_WAYS[address.partition(":")[0]], load, ("native", "wire")))
        yield Serving(pid if len(setting.payloads) == 1 else None, routes)


class GrpcEcho:
    """gRPC in C++, as a service of its synchronous kind: unary and streaming, TCP and Unix."""

    def prepare(self, cache: Path) -> None:
        """Build it."""
        program("policybridge-grpc-echo", cache)

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve."""
        listen = ["127.0.0.1:0", f"unix:{setting.folder}/echo"]
        with server([str(program("policybridge-grpc-echo", setting.cache)), *listen]) as started:
            yield Serving(started.pid, list(_calls(started.addresses, setting.payloads)))


class PythonGrpcEcho:
    """grpcio's asyncio server, on TCP."""

    def prepare(self, cache: Path) -> None:
        """Nothing is missing."""

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve."""
        with server(module("policybridge_bench.echoes", "grpc")) as started:
            yield Serving(started.pid, list(_calls(started.addresses, setting.payloads)))


def _calls(addresses: Sequence[str], payloads: Sequence[str]) -> Iterator[Route]:
    for address in addresses:
        suffix = "-unix" if address.startswith("grpc:unix:") else ""
        for name in payloads:
            for way in ("unary", "stream"):
                load = Load(kind=f"echo-{way}", address=address, payload=name)
                yield Route(way + suffix, load, ("native", "python"))

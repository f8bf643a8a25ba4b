"""Ray Serve, over gRPC."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from policybridge_bench.contenders.advice import check_advice, compile_advice, route
from policybridge_bench.contenders.contract import Serving, Setting
from policybridge_bench.contenders.environments import RUNTIME, environment
from policybridge_bench.contenders.peer import FIXED, SERVERS, free_port, running, write_model

_REQUIREMENTS: Final = ("ray[serve]==2.60.0", "grpcio", "grpcio-tools", RUNTIME)
_TUNED: Final = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_USAGE_STATS_ENABLED": "0"}


class RayServe:
    """One replica, with the switch that Ray's guide to performance recommends; by its proxy, and without."""

    def prepare(self, cache: Path) -> None:
        """Install it."""
        environment(cache, "rayserve", _REQUIREMENTS)

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve the first payload's model: its service has messages of one kind."""
        name, port = next(name for name in setting.payloads if name in FIXED), free_port()
        python = environment(setting.cache, "rayserve", _REQUIREMENTS) / "bin" / "python"
        model, stubs = write_model(setting.folder / "policies", name), setting.folder / "stubs"
        compile_advice(python, stubs, name)
        direct, ports = free_port(), [str(port), str(free_port())]
        command = [python, SERVERS / "rayserve_server.py", model, *ports, setting.folder / "ray"]

        def ready() -> None:
            for one in (port, direct):
                check_advice("Ray Serve", one, name, model)

        env = {**_TUNED, **_ingress(direct), "PYTHONPATH": f"{stubs}:{SERVERS}"}
        with running(command, setting.folder / "rayserve.log", ready, env) as pid:
            ways = {"proxy": port, "direct": direct}
            yield Serving(pid, [route(setting.folder, f"grpc:127.0.0.1:{one}", name, way) for way, one in ways.items()])


def _ingress(port: int) -> dict[str, str]:
    """Let the replica listen on ``port`` itself: the first of a range of one."""
    prefix, other = "RAY_SERVE_DIRECT_INGRESS_", free_port()
    ports = {"MIN_GRPC_PORT": port, "MAX_GRPC_PORT": port + 1, "MIN_HTTP_PORT": other, "MAX_HTTP_PORT": other + 1}
    return {f"{prefix}{name}": str(value) for name, value in ports.items()}

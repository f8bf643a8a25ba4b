"""Ray Serve, over gRPC."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from policybridge_bench.contenders.advice import check_advice, compile_advice, route
from policybridge_bench.contenders.contract import Setting
from policybridge_bench.contenders.environments import RUNTIME
from policybridge_bench.contenders.peer import SERVERS, Peer, Start, free_port

_TUNED: Final = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_USAGE_STATS_ENABLED": "0"}


class RayServe(Peer):
    """One replica, with the switch that Ray's guide to performance recommends; by its proxy, and without."""

    name = "rayserve"
    requirements = ("ray[serve]==2.60.0", "grpcio", "grpcio-tools", RUNTIME)

    def start(self, setting: Setting, models: Mapping[str, Path]) -> Start:
        """Serve the first payload's model: its service has messages of one kind."""
        name, model = next(iter(models.items()))
        python, stubs = self.environment(setting.cache) / "bin" / "python", setting.folder / "stubs"
        compile_advice(python, stubs, name)
        ways = {"proxy": free_port(), "direct": free_port()}
        ports = [str(ways["proxy"]), str(free_port())]
        command = [python, SERVERS / "rayserve_server.py", model, *ports, setting.folder / "ray"]

        def ready() -> None:
            for port in ways.values():
                check_advice("Ray Serve", port, name, model)

        env = {**_TUNED, **_ingress(ways["direct"]), "PYTHONPATH": f"{stubs}:{SERVERS}"}
        made = lambda: [route(setting.folder, f"grpc:127.0.0.1:{port}", name, way) for way, port in ways.items()]  # noqa: E731
        return Start(command, ready, made, env)


def _ingress(port: int) -> dict[str, str]:
    """Let the replica listen on ``port`` itself: the first of a range of one."""
    prefix, other = "RAY_SERVE_DIRECT_INGRESS_", free_port()
    ports = {"MIN_GRPC_PORT": port, "MAX_GRPC_PORT": port + 1, "MIN_HTTP_PORT": other, "MAX_HTTP_PORT": other + 1}
    return {f"{prefix}{name}": str(value) for name, value in ports.items()}

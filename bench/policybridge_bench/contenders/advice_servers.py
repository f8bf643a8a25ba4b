"""Servers with a service of ours: ML-Compiler-Bridge's Python end, ``compilerinterface``, and Ray Serve."""

from collections.abc import Mapping
from typing import Final

from policybridge_bench.contenders.advice import AdvicePeer
from policybridge_bench.contenders.peer import RUNTIME, free_port

_TUNED: Final = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_USAGE_STATS_ENABLED": "0"}


class CompilerInterface(AdvicePeer):
    """Its own server, with the service as its users write one."""

    name = "compilerinterface"
    requirements = ("compilerinterface==0.0.2", "grpcio", "grpcio-tools", "numpy", "setuptools<81", RUNTIME)
    program = "compilerinterface_server.py"


class RayServe(AdvicePeer):
    """One replica, with the switch that Ray's guide to performance recommends; by its proxy, and without."""

    name = "rayserve"
    requirements = ("ray[serve]==2.60.0", "grpcio", "grpcio-tools", RUNTIME)
    program = "rayserve_server.py"
    ways = ("proxy", "direct")

    def env(self, ports: Mapping[str, int]) -> Mapping[str, str]:
        """Let the replica listen on its port itself: the first of a range of one."""
        port, other = ports["direct"], free_port()
        limits = {"MIN_GRPC_PORT": port, "MAX_GRPC_PORT": port + 1, "MIN_HTTP_PORT": other, "MAX_HTTP_PORT": other + 1}
        return {**_TUNED, **{f"RAY_SERVE_DIRECT_INGRESS_{name}": str(value) for name, value in limits.items()}}

"""KServe's Python server, over gRPC."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from policybridge_bench.contenders.contract import Setting
from policybridge_bench.contenders.environments import RUNTIME
from policybridge_bench.contenders.inference import check_models, routes
from policybridge_bench.contenders.peer import SERVERS, Peer, Start, free_port


class KServe(Peer):
    """One process, without a proxy and without a queue."""

    name = "kserve"
    requirements = ("kserve==0.21.0", RUNTIME)

    def start(self, setting: Setting, models: Mapping[str, Path]) -> Start:
        """Serve every payload's model."""
        port, named = free_port(), [f"{name}={model}" for name, model in models.items()]
        python = self.environment(setting.cache) / "bin" / "python"
        ports = [f"--grpc_port={port}", f"--http_port={free_port()}"]
        command = [python, SERVERS / "kserve_server.py", *named, *ports]
        ready = partial(check_models, "KServe", port, models)
        return Start(command, ready, partial(routes, setting.folder, port, list(models), streams=False))

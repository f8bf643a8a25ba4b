"""Servers of the Open Inference Protocol in Python: KServe's and MLServer."""

import json
from collections.abc import Mapping
from pathlib import Path

from policybridge_bench.contenders.contract import Setting
from policybridge_bench.contenders.inference import InferencePeer
from policybridge_bench.contenders.peer import RUNTIME, SERVERS, Start, free_port


class KServe(InferencePeer):
    """KServe's server: one process, without a proxy and without a queue."""

    name = "kserve"
    requirements = ("kserve==0.21.0", RUNTIME)

    def start(self, setting: Setting, models: Mapping[str, Path]) -> Start:
        """Serve every payload's model."""
        port, named = free_port(), [f"{name}={model}" for name, model in models.items()]
        python = self.environment(setting.cache) / "bin" / "python"
        ports = [f"--grpc_port={port}", f"--http_port={free_port()}"]
        return self.serving(setting, models, port, [python, SERVERS / "kserve_server.py", *named, *ports])


class MLServer(InferencePeer):
    """MLServer without its pool of worker processes, which would add a hop between processes."""

    name = "mlserver"
    requirements = ("mlserver==1.7.1", RUNTIME)

    def start(self, setting: Setting, models: Mapping[str, Path]) -> Start:
        """Serve every payload's model."""
        port, folder = free_port(), setting.folder / "models"
        for name, model in models.items():
            own = {"name": name, "implementation": "mlserver_runtime.OnnxModel", "parameters": {"uri": str(model)}}
            (folder / name).mkdir(parents=True)
            (folder / name / "model-settings.json").write_text(json.dumps(own))
        ports = {"grpc_port": port, "http_port": free_port(), "metrics_port": free_port()}
        settings = {**ports, "host": "127.0.0.1", "parallel_workers": 0, "metrics_endpoint": None}
        (folder / "settings.json").write_text(json.dumps({**settings, "use_structured_logging": False, "debug": False}))
        program = self.environment(setting.cache) / "bin" / "mlserver"
        return self.serving(setting, models, port, [program, "start", folder])

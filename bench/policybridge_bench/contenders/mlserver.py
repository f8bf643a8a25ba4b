"""MLServer, over gRPC."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from policybridge_bench.contenders.contract import Setting
from policybridge_bench.contenders.environments import RUNTIME
from policybridge_bench.contenders.inference import check_models, routes
from policybridge_bench.contenders.peer import SERVERS, Peer, Start, free_port


class MLServer(Peer):
    """Without its pool of worker processes, which would add a hop between processes."""

    name = "mlserver"
    requirements = ("mlserver==1.7.1", RUNTIME)

    def start(self, setting: Setting, models: Mapping[str, Path]) -> Start:
        """Serve every payload's model."""
        port, folder = free_port(), setting.folder / "models"
        for name, model in models.items():
            _write_model_settings(folder / name, name, model)
        _write_settings(folder, port)
        command = [self.environment(setting.cache) / "bin" / "mlserver", "start", folder]
        ready = partial(check_models, "MLServer", port, models)
        made = partial(routes, setting.folder, port, list(models), streams=False)
        return Start(command, ready, made, {"PYTHONPATH": str(SERVERS)})


def _write_settings(folder: Path, port: int) -> None:
    ports = {"grpc_port": port, "http_port": free_port(), "metrics_port": free_port()}
    settings = {**ports, "host": "127.0.0.1", "parallel_workers": 0, "metrics_endpoint": None}
    (folder / "settings.json").write_text(json.dumps({**settings, "use_structured_logging": False, "debug": False}))


def _write_model_settings(folder: Path, name: str, model: Path) -> None:
    folder.mkdir(parents=True)
    settings = {"name": name, "implementation": "mlserver_runtime.OnnxModel", "parameters": {"uri": str(model)}}
    (folder / "model-settings.json").write_text(json.dumps(settings))

"""MLServer, over gRPC."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from policybridge_bench.contenders.contract import Serving, Setting
from policybridge_bench.contenders.environments import RUNTIME, environment
from policybridge_bench.contenders.inference import check_models, routes
from policybridge_bench.contenders.peer import FIXED, SERVERS, free_port, running, write_model

_REQUIREMENTS: Final = ("mlserver==1.7.1", RUNTIME)


class MLServer:
    """Without its pool of worker processes, which costs a hop."""

    def prepare(self, cache: Path) -> None:
        """Install it."""
        environment(cache, "mlserver", _REQUIREMENTS)

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve every payload's model."""
        port, folder = free_port(), setting.folder / "models"
        models = {n: write_model(setting.folder / "policies", n) for n in setting.payloads if n in FIXED}
        for name, model in models.items():
            _write_model_settings(folder / name, name, model)
        _write_settings(folder, port)
        command = [environment(setting.cache, "mlserver", _REQUIREMENTS) / "bin" / "mlserver", "start", folder]
        ready = lambda: check_models("MLServer", port, models)  # noqa: E731
        env = {"PYTHONPATH": str(SERVERS)}
        with running(command, setting.folder / "mlserver.log", ready, env) as pid:
            yield Serving(pid, list(routes(setting.folder, port, list(models), streams=False)))


def _write_settings(folder: Path, port: int) -> None:
    ports = {"grpc_port": port, "http_port": free_port(), "metrics_port": free_port()}
    settings = {**ports, "host": "127.0.0.1", "parallel_workers": 0, "metrics_endpoint": None}
    (folder / "settings.json").write_text(json.dumps({**settings, "use_structured_logging": False, "debug": False}))


def _write_model_settings(folder: Path, name: str, model: Path) -> None:
    folder.mkdir(parents=True)
    settings = {"name": name, "implementation": "mlserver_runtime.OnnxModel", "parameters": {"uri": str(model)}}
    (folder / "model-settings.json").write_text(json.dumps(settings))

"""Triton, the binary in NVIDIA's wheel: with the backend for ONNX Runtime, and with that for Python."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from policybridge_bench.contenders.contract import Serving, Setting
from policybridge_bench.contenders.environments import RUNTIME, environment, site_packages
from policybridge_bench.contenders.inference import check_models, routes
from policybridge_bench.contenders.peer import FIXED, SERVERS, free_port, running, write_model
from policybridge_bench.contenders.triton_backend import build_backend

_WHEEL: Final = "nvidia-pytriton==0.7.0"

# One instance and no dynamic batching: what Triton's guide to optimisation begins with for latency.
_ONNX: Final = """\
backend: "onnxruntime"
max_batch_size: 0
instance_group [{ kind: KIND_CPU, count: 1 }]
parameters { key: "intra_op_thread_count" value: { string_value: "1" } }
parameters { key: "inter_op_thread_count" value: { string_value: "1" } }
"""


class Triton:
    """With ONNX Runtime's backend, which the wheel lacks and which is built from its sources."""

    def prepare(self, cache: Path) -> None:
        """Install the wheel, and build the backend."""
        _server(cache)
        self.backends(cache)

    def backends(self, cache: Path) -> Path:
        """Give the folder of Triton's backends."""
        return build_backend(cache)

    def write(self, folder: Path, payload: str, model: Path) -> None:
        """Put a model into Triton's repository."""
        (folder / payload / "1").mkdir(parents=True)
        shutil.copy(model, folder / payload / "1" / "model.onnx")
        (folder / payload / "config.pbtxt").write_text(_ONNX)

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve every payload's model."""
        payloads = [name for name in setting.payloads if name in FIXED]
        repository, port = setting.folder / "repository", free_port()
        repository.mkdir()
        models = {name: write_model(setting.folder / "policies", name) for name in payloads}
        for name, model in models.items():
            self.write(repository, name, model)
        options = {
            "model-repository": repository,
            "backend-directory": self.backends(setting.cache),
            "grpc-address": "127.0.0.1",
            "grpc-port": port,
            "allow-http": "false",
            "allow-metrics": "false",
        }
        command = [_server(setting.cache), *(f"--{key}={value}" for key, value in options.items())]
        env = {"PATH": f"{setting.cache.absolute()}/envs/triton/bin:{os.environ['PATH']}"}
        ready = lambda: check_models("Triton", port, models)  # noqa: E731
        with running(command, setting.folder / "triton.log", ready, env) as pid:
            yield Serving(pid, list(routes(setting.folder, port, payloads, streams=True)))


class TritonPython(Triton):
    """With the Python backend, for a model in ONNX Runtime."""

    def prepare(self, cache: Path) -> None:
        """Install the wheel, and put the stub for this Python where the backend looks for it."""
        folder = _server(cache).parents[1]
        stub = "triton_python_backend_stub"
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        shutil.copy(folder / "python_backend_stubs" / version / stub, folder / "backends" / "python" / stub)

    def backends(self, cache: Path) -> Path:
        """Give the folder of the wheel's own backends."""
        return _server(cache).parents[1] / "backends"

    def write(self, folder: Path, payload: str, model: Path) -> None:
        """Put a Python model that runs it into Triton's repository."""
        (folder / payload / "1").mkdir(parents=True)
        (folder / payload / "config.pbtxt").write_text('backend: "python"\n')
        shutil.copy(model, folder / payload / "1" / "weights.onnx")
        shutil.copy(SERVERS / "triton_model.py", folder / payload / "1" / "model.py")


def _server(cache: Path) -> Path:
    env = environment(cache, "triton", [_WHEEL, RUNTIME, "numpy"])
    return site_packages(env) / "pytriton" / "tritonserver" / "bin" / "tritonserver"

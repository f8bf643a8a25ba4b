"""Triton, the binary in NVIDIA's wheel: with the backend for ONNX Runtime, and with that for Python."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from policybridge_bench.contenders.contract import Setting
from policybridge_bench.processes import free_port
from tests.peers.inference import InferencePeer
from tests.peers.peer import RUNTIME, SERVERS, Start, site_packages
from tests.peers.triton_backend import build_backend

# One instance and no dynamic batching: the first advice for latency in Triton's guide to optimisation.
_ONNX: Final = """\
backend: "onnxruntime"
max_batch_size: 0
instance_group [{ kind: KIND_CPU, count: 1 }]
parameters { key: "intra_op_thread_count" value: { string_value: "1" } }
parameters { key: "inter_op_thread_count" value: { string_value: "1" } }
"""


class Triton(InferencePeer):
    """With ONNX Runtime's backend, which the wheel lacks and which is built from its sources."""

    name = "triton"
    requirements = ("nvidia-pytriton==0.7.0", RUNTIME, "numpy")
    streams = True

    def prepare(self, cache: Path) -> None:
        """Install the wheel, and build the backend."""
        super().prepare(cache)
        self.backends(cache)

    def backends(self, cache: Path) -> Path:
        """Give the folder of Triton's backends."""
        return build_backend(cache)

    def write(self, folder: Path, payload: str, model: Path) -> None:
        """Write a model into Triton's repository."""
        (folder / payload / "1").mkdir(parents=True)
        shutil.copy(model, folder / payload / "1" / "model.onnx")
        (folder / payload / "config.pbtxt").write_text(_ONNX)

    def start(self, setting: Setting, models: Mapping[str, Path]) -> Start:
        """Serve every payload's model."""
        repository, port = setting.folder / "repository", free_port()
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
        program = self.server(setting.cache) / "bin" / "tritonserver"
        return self.serving(setting, models, port, [program, *(f"--{key}={value}" for key, value in options.items())])

    def server(self, cache: Path) -> Path:
        """Give the folder of the wheel's server."""
        return site_packages(self.environment(cache)) / "pytriton" / "tritonserver"


class TritonPython(Triton):
    """With the Python backend, for a model in ONNX Runtime."""

    def prepare(self, cache: Path) -> None:
        """Install the wheel, and put the stub for this Python where the backend looks for it."""
        folder = self.server(cache)
        stub = "triton_python_backend_stub"
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        shutil.copy(folder / "python_backend_stubs" / version / stub, folder / "backends" / "python" / stub)

    def backends(self, cache: Path) -> Path:
        """Give the folder of the wheel's own backends."""
        return self.server(cache) / "backends"

    def write(self, folder: Path, payload: str, model: Path) -> None:
        """Write a Python model that runs the model into Triton's repository."""
        (folder / payload / "1").mkdir(parents=True)
        (folder / payload / "config.pbtxt").write_text('backend: "python"\n')
        shutil.copy(model, folder / payload / "1" / "weights.onnx")
        shutil.copy(SERVERS / "triton_model.py", folder / payload / "1" / "model.py")
        shutil.copy(SERVERS / "decider.py", folder / payload / "1")
